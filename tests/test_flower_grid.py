"""Every algorithm over Flower follows the compiled star engine, in a grid with the real client apps."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

import accord
from accord.oracles import VarianceReduced
from flower_sites import arrays, grid_of, problem, run

ROUNDS = 30
ALGORITHMS = {name: algorithm() for name, algorithm in accord.REGISTRY.items()} | {
    "FedPD that skips": accord.FedPD(skip_probability=0.4),
    "AGPDMM with minibatches": accord.AGPDMM(local_steps=3, batch_size=4),
    "FedPD with variance reduction": accord.FedPD(
        oracle=VarianceReduced(batch_size=4, local_steps=3)
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_over_sites_follows_the_star_engine(name, tmp_path):
    kind = ("least_squares", "logistic")[list(ALGORITHMS).index(name) % 2]
    algorithm, rows = ALGORITHMS[name], arrays(4)
    for participation in (1.0, 0.6):
        star = {"participation": participation, "record": ("x",), "seed": 3}
        grid = grid_of(tmp_path / str(participation), rows, kind)
        for context in grid._contexts.values():
            context.node_config["least-batch"] = 4
        if participation < 1 and algorithm.absent is None:
            with pytest.raises(ValueError, match="participation"):
                accord.run(algorithm, problem(rows, kind), ROUNDS, **star)
            with pytest.raises(ValueError, match="participation"):
                run(grid, algorithm, participation=participation)
            continue
        expected = accord.run(algorithm, problem(rows, kind), ROUNDS, **star)
        found = run(grid, algorithm, ROUNDS, participation=participation, seed=3)
        assert found.xs.shape == expected.xs.shape
        assert np.abs(found.xs - expected.xs).max() <= 1e-12
        # The trajectory moves, and the method's own counts are those of the engine.
        assert np.abs(np.diff(expected.xs[:3], axis=0)).max() > 1e-6
        ours, theirs = found.run.history, expected.history
        np.testing.assert_allclose(ours["objective"][-1], theirs["objective"][-1], rtol=1e-12)
        # Where an exact local solve ends may hang on a rounding.
        for column in set(ours) & set(theirs) & {"iterations", "gradients"}:
            np.testing.assert_allclose(ours[column][-1], theirs[column][-1], rtol=0.01)
