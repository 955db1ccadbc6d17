"""How a run ended: a name and a whole sentence."""

from typing import NamedTuple

CONVERGED = "converged"
BUDGET_SPENT = "budget_spent"
DIVERGED = "diverged"
NOT_FINITE = "not_finite"
CLIENT_FAILED = "client_failed"


class Status(NamedTuple):
    """The end of a run.

    ``name`` is one of ``converged``, ``budget_spent``, ``diverged``, ``not_finite`` and
    ``client_failed``; ``sentence`` says what happened and, for a failure, its likely cause.
    """

    name: str
    sentence: str

    @property
    def ok(self) -> bool:
        """True where the model is usable: the run converged or spent its budget."""
        return self.name in (CONVERGED, BUDGET_SPENT)

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"
