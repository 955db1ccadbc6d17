"""Every check of the conformance suite on every registered algorithm and its variants."""

import pytest

import accord
from accord import conformance, oracles

VARIANTS = {
    **{name: algorithm() for name, algorithm in accord.REGISTRY.items()},
    "FedPD, skipping": accord.FedPD(skip_probability=0.3),
    "FedPD, decaying": accord.FedPD(skip_probability=accord.LinearDecay(40)),
    "FedPD, gradient descent": accord.FedPD(oracle=oracles.GradientDescent()),
    "FedPD, closed form": accord.FedPD(oracle=oracles.Linearised(local_steps=3)),
    "FedPD, variance reduced": accord.FedPD(
        oracle=oracles.VarianceReduced(batch_size=4, restart_interval=2, local_steps=3)
    ),
    "PDMM, relaxed": accord.PDMM(relaxation=0.5),
    "InexactFedSplit, dual": accord.InexactFedSplit(start="dual"),
    "InexactFedSplit, warm": accord.InexactFedSplit(start="warm"),
    "FedAvg, one step": accord.FedAvg(local_steps=1),
    "GPDMM, minibatch": accord.GPDMM(batch_size=5),
}

NOT_EXACT = {
    "FedAvg",
    "FedProx",
    "FedPD, skipping",
    "InexactFedSplit, dual",
    "GPDMM, minibatch",
}


def test_who_is_exact():
    """Only the four methods of the theory, and minibatch noise, keep a method from the optimum."""
    problem = conformance.common_problem()
    declared = {
        name
        for name, algorithm in VARIANTS.items()
        if not accord.theory.resolve(algorithm, problem).exact.reaches
    }
    assert declared == NOT_EXACT


@pytest.mark.parametrize("check", conformance.CHECKS)
@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in VARIANTS]
)
def test_check(variant, check):
    result = conformance.check_one(VARIANTS[variant], check)
    if result.passed is None:
        pytest.skip(result.detail)
    assert result.passed, result.detail
