"""The sites that take part in a run: who they are, what they are asked, and rounds with them.

Membership may change: a site that misses several rounds in a row has left, and one that comes late may
join. Either changes F, so that the method starts anew at the model it has come to: ``ChangedError`` says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.app import RecordDict

from accord.core.checks import is_number
from accord.engines.job import check_whole
from accord.flower.events import Events
from accord.flower.post import Patience, Post, Traffic
from accord.flower.rounds import NEVER, Rounds
from accord.flower.store import digest_of
from accord.flower.wire import NotFiniteError, RefusedError, letter, trees_of
from accord.problems.base import positive

_PARTS = {
    "constants": "constants",
    "derivatives": "certificate",
    "least": "certificate",
    "report": "results",
}
"""Which part of a run a question belongs to; others belong to the fit."""


class ChangedError(Exception):
    """The method has to start anew, from the model that it has come to; the text says why."""


class FailedError(RuntimeError):
    """A run that cannot go on; the text says why and what to do."""


class DivergedError(FailedError):
    """Every site's reply was NaN or infinite, or the server's own model is."""

    def __init__(self, what: str):
        super().__init__(
            f"{what} NaN or infinite, as of a method that diverges: lower step_size, raise penalty, or "
            "scale the columns"
        )


@dataclass(frozen=True)
class Terms:
    """Who takes part, and how long the server waits for whom.

    A run starts ``settle`` seconds after ``min_clients`` sites have come, or once ``max_clients`` have;
    without the former it ends after ``start_wait`` seconds. A round ends when everyone asked has replied, or
    after ``deadline`` seconds; with ``quorum``, a share of those asked, half of that is enough where so many
    have. What has fewer replies is asked again. A site that misses ``leave_after`` rounds in a row has left
    for good. ``late`` says whether sites that come later join: "join" or "refuse". ``resend``: seconds
    after which a letter without a reply is sent again. ``poll``: seconds between looks for replies.
    """

    min_clients: int = 2
    max_clients: int | None = None
    start_wait: float = 600.0
    settle: float = 10.0
    deadline: float = 600.0
    quorum: float = 1.0
    leave_after: int = 3
    late: str = "join"
    resend: float = 120.0
    poll: float = 0.1

    def __post_init__(self):
        check_whole("min_clients", self.min_clients, 1, 31)
        check_whole("leave_after", self.leave_after, 1, 31)
        if self.max_clients is not None:
            check_whole("max_clients", self.max_clients, self.min_clients, 31)
        for name in ("start_wait", "deadline", "resend", "poll"):
            positive(name, getattr(self, name))
        if not is_number(self.settle) or not 0 <= self.settle < math.inf:
            raise ValueError(f"settle: got {self.settle!r}; accepted is a number of seconds >= 0")
        if not is_number(self.quorum) or not 0 < self.quorum <= 1:
            raise ValueError(f"quorum: got {self.quorum!r}; accepted is a share in (0, 1]")
        if self.late not in ("join", "refuse"):
            raise ValueError(f"late: got {self.late!r}; accepted are 'join' and 'refuse'")

    @property
    def patience(self) -> Patience:
        """The same, as the post has it."""
        return Patience(self.deadline, self.resend, min(2.0, self.resend), self.poll)


class Reply(NamedTuple):
    """A client's part of a round: ``message`` (None where it only measured), its ``numbers``, and f_i and
    its gradient at the server's model where they were asked for."""

    message: Any
    numbers: dict[str, float]
    value: float | None
    gradient: Any


class Sites:
    """The members of a run, in the order that numbers them.

    ``members``: their names; ``left``: those who are none, as "left" or "declined"; ``traffic``: by part of
    the run, (exchanges, Traffic).
    """

    def __init__(self, post: Post, terms: Terms, events: Events, run: str):
        self.post, self.terms, self.events, self.run = post, terms, events, run
        self.members: list[str] = []
        self.left: dict[str, str] = {}
        self.traffic: dict[str, tuple[int, Traffic]] = {}
        self._missed: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._plan = ""

    def restore(self, traffic: dict[str, list[int]]) -> None:
        """Goes on counting from what was counted before."""
        self.traffic = {part: (n, Traffic(*moved)) for part, (n, *moved) in traffic.items()}

    def gather(self, wanted: list[str] | None = None) -> None:
        """Waits for the sites that a run starts with, or those ``wanted``; ``FailedError`` without them."""
        terms, post, least = self.terms, self.post, self.terms.min_clients
        enough = (lambda: set(wanted) <= set(post.present)) if wanted else self._enough
        self.events("waiting", clients=wanted or least, seconds=terms.start_wait)
        post.meet(terms.start_wait, enough)
        if len(post.present) >= least and not wanted and not self._full():
            post.meet(terms.settle, self._full)
        here = [n for n in wanted or [] if n in post.present] or in_order(post.present)
        if len(here) < least:
            failed = "; ".join(post.failed.values())
            raise FailedError(
                f"{len(here)} of at least {least} clients came within {terms.start_wait:g} s"
                + (f"; not usable: {failed}" if failed else "")
                + "; start more SuperNodes, or lower min-clients"
            )
        for name in wanted or []:
            if name not in here:
                self.left[name] = "left"
                self.events("client_missing", client=name)
        self._admit(here)

    def _enough(self) -> bool:
        return len(self.post.present) >= self.terms.min_clients

    def _full(self) -> bool:
        most = self.terms.max_clients
        return most is not None and len(self.post.present) >= most

    def _admit(self, names: list[str]) -> None:
        most = self.terms.max_clients or len(names)
        for name in names[most:]:
            self.events("client_declined", client=name, why=f"max-clients is {most}")
            self.left.setdefault(name, "declined")
        self.members = names[:most]
        self._missed = dict.fromkeys(self.members, 0)
        self.events("members", clients=self.members)

    def admit_late(self) -> None:
        """Takes in the sites that have come since the run began, and waits for news of changed ones."""
        self.post.meet(self.terms.start_wait, lambda: set(self.members) <= set(self.post.cards))
        for name in [n for n in self.members if n not in self.post.cards]:
            self.members.remove(name)
            self.left[name] = "left"
            self.events("client_left", client=name, why="no news of its changed table")
        if len(self.members) < self.terms.min_clients:
            raise FailedError(
                f"{len(self.members)} clients are fewer than min-clients, {self.terms.min_clients}"
            )
        for name in self._late():
            self.left.pop(name, None)
            self.members.append(name)
            self._missed[name] = 0
            self.events("client_joined", client=name, rows=self.post.cards[name]["rows"])

    def _late(self) -> list[str]:
        """Sites that are there and may join."""
        declined = [n for n, why in self.left.items() if why == "declined"]
        late = [n for n in self.post.present if n not in self.members and n not in declined]
        room = (self.terms.max_clients or math.inf) - len(self.members)
        return in_order(late)[: int(min(room, len(late)))] if self.terms.late == "join" else []

    def rows(self) -> dict[str, int]:
        """The members' numbers of rows."""
        return {name: int(self.post.cards[name]["rows"]) for name in self.members}

    def agree_on(self, plan: str) -> None:
        """The text from which every site makes its problem."""
        self._plan = plan

    def ask(
        self, what: str, about: dict[str, Any], arrays, like, check: Callable = lambda told: None
    ) -> dict[str, tuple[dict, dict]]:
        """Every member's answer, by name: plain values, and trees of the shapes in ``like``.

        ``check(told)`` raises ``RefusedError`` for plain values that are not what was asked for.
        """

        def make(name):
            return lambda lost: self._letter(
                name, {"kind": "ask", "what": what, **about}, arrays, [self._plan], lost
            )

        def accept(name, told, record):
            if what == "survey":
                finite(told.get("value"), "value")
            check(told)
            return told, trees_of(record, like)

        part = _PARTS.get(what, "fit")
        self.events("asked", what=what)
        answers: dict[str, tuple[dict, dict]] = {}
        while len(answers) < len(self.members):
            missing = [n for n in self.members if n not in answers]
            letters = {n: make(n) for n in missing}
            answers |= self._exchange(letters, "query", accept, [self._plan], part=part)
            self._count(missing, answers)
        return answers

    def round(
        self, rounds: Rounds, measured: bool, replies: dict[str, Reply] | None = None
    ) -> dict[str, Reply]:
        """The replies of one round by name, of all who are needed; asked again until there are enough.

        ``replies`` are those that are there already.
        """
        works, asked = self._asked(rounds, measured)
        _begin(rounds)
        needed = len(works) if rounds.algorithm.absent is None else self._quorum(len(works))
        accept, texts = self._accepting(rounds, measured), [self._plan, rounds.method]
        replies = dict(replies or {})
        while True:
            missing = [n for n in asked if n not in replies]
            letters = {n: self._letter_of(rounds, n, n in works, measured) for n in missing}

            def enough(got, before=replies):
                return sum(n in got or n in before for n in works) >= needed

            replies = replies | self._exchange(letters, "train", accept, texts, enough)
            self._count([n for n in missing if n in works], replies)
            heard = [n for n in works if n in replies]
            if len(heard) >= needed:
                return replies
            self.events("round_again", round=rounds.round, heard=heard, needed=needed)

    def letters(self, rounds: Rounds, measured: bool) -> dict[int, RecordDict]:
        """The letters of one round by node, for a caller that sends them itself."""
        works, asked = self._asked(rounds, measured)
        _begin(rounds)
        nodes = {n: self.post.node_of(n) for n in asked}
        return {
            node: self._letter_of(rounds, n, n in works, measured)(frozenset())
            for n, node in nodes.items()
            if node is not None
        }

    def heard(self, rounds: Rounds, measured: bool, messages) -> dict[str, Reply]:
        """The replies to ``letters`` that are what was agreed, by name."""
        return self.post.read(messages, self._current(self._accepting(rounds, measured)))

    def _asked(self, rounds: Rounds, measured: bool) -> tuple[list[str], list[str]]:
        """(who works in the round, who is asked at all)."""
        works = rounds.participants()
        return works, [n for n in self.members if n in works or measured]

    def _letter_of(self, rounds: Rounds, name: str, works: bool, measured: bool):
        """The round's letter to a client, as ``Post.exchange`` wants it."""

        def written(lost):
            if "state" in lost and rounds.acknowledged[name] == NEVER:
                raise ChangedError(f"{name} has done rounds that the checkpoint knows nothing of")
            if "state" in lost and rounds.algorithm.recover_client is None:
                method = type(rounds.algorithm).__name__
                raise ChangedError(
                    f"{name} has lost its state, which {method} cannot restore from a message"
                )
            if "state" in lost:
                self.events("state_restored", client=name, round=rounds.round)
            about, arrays = rounds.letter(name, works, measured, "state" in lost)
            return self._letter(name, about, arrays, [self._plan, rounds.method], lost)

        return written

    def _accepting(self, rounds: Rounds, measured: bool):
        """What makes a ``Reply`` of a client's answer to a round, or refuses it."""
        works = rounds.participants()

        def accept(name, told, record):
            if (told.get("epoch"), told.get("round")) != (rounds.epoch, rounds.round):
                raise RefusedError(
                    f"it is of round {told.get('round')} and epoch {told.get('epoch')}, not "
                    f"{rounds.round} and {rounds.epoch}"
                )
            like = {"message": rounds.shapes.message} if name in works else {}
            trees = trees_of(record, like | ({"gradient": rounds.x0} if measured else {}))
            message = trees.get("message")
            numbers = {
                key: finite(told[key], key) for key in ("gradients", "iterations") if key in told
            }
            if not measured:
                return Reply(message, numbers, None, None)
            value = finite(told.get("value"), "value")
            return Reply(message, numbers, value, trees["gradient"])

        return accept

    def _quorum(self, count: int) -> int:
        return max(1, math.ceil(self.terms.quorum * count - 1e-9))

    def _letter(self, name, about, arrays, texts, lost):
        untold = [t for t in texts if "text" in lost or (name, digest_of(t)) not in self._told]
        head = {"run": self.run, "plan": digest_of(self._plan), "texts": untold}
        return letter(head | about, arrays)

    def _exchange(self, letters, kind, accept, texts, enough=lambda got: False, part="fit"):
        before, overflowed = self.post.traffic, set()

        def accepted(name, told, record):
            try:
                found = self._current(accept)(name, told, record)
            except NotFiniteError:
                overflowed.add(name)
                raise
            # Who has answered has what was sent along.
            self._told |= {(name, digest_of(text)) for text in texts}
            return found

        found = self.post.exchange(letters, kind, accepted, enough)
        if overflowed and not found:
            raise DivergedError(f"the replies of {', '.join(sorted(overflowed))} are")
        after = self.post.traffic
        count, so_far = self.traffic.get(part, (0, Traffic()))
        moved = Traffic(so_far.up + after.up - before.up, so_far.down + after.down - before.down)
        self.traffic[part] = count + 1, moved
        return found

    def _current(self, accept):
        """``accept`` for replies from the table that the client had when it came."""

        def current(name, told, record):
            if told.get("source") != self.post.cards[name].get("source"):
                self.post.forget(name)
                raise ChangedError(f"the table of {name} has changed")
            return accept(name, told, record)

        return current

    def _count(self, asked, replies) -> None:
        """Counts who did not reply; who misses too many rounds has left for good."""
        for name in asked:
            self._missed[name] = 0 if name in replies else self._missed[name] + 1
        gone = [n for n in self.members if self._missed[n] >= self.terms.leave_after]
        for name in gone:
            self.left[name] = "left"
            self.members.remove(name)
            self.post.dismiss(name)
            why = self.post.refused.get(name) or f"{self._missed[name]} times without a reply"
            self.events("client_left", client=name, why=why)
        if gone and len(self.members) < self.terms.min_clients:
            wrong = {n: self.post.refused[n] for n in gone if n in self.post.refused}
            cause = "; ".join(f"{n}: {why}" for n, why in wrong.items())
            raise FailedError(
                f"{', '.join(gone)} left, and {len(self.members)} clients are fewer than min-clients, "
                f"{self.terms.min_clients}; {cause or 'the run resumes when they are back'}"
            )
        if gone:
            raise ChangedError(f"{', '.join(gone)} left for good")
        self.post.look(at_once=False)
        if late := self._late():
            raise ChangedError(f"{', '.join(late)} came to join")


def _begin(rounds: Rounds) -> None:
    """Begins a round, for whose model no site could give anything where it is not finite."""
    rounds.begin()
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rounds.x)):
        raise DivergedError("the server's model is")


def finite(value, name: str) -> float:
    """A finite number; raises ``RefusedError`` naming it for anything else."""
    if not is_number(value) or not math.isfinite(value):
        kind = NotFiniteError if is_number(value) else RefusedError
        raise kind(f"{name!r} is {value!r}; expected a finite number")
    return float(value)


def in_order(names) -> list[str]:
    """Names as ``accord.data.read_sites`` orders them: whole numbers by size, else alphabetically."""
    import polars as pl

    from accord.data.frames import whole

    names = list(names)
    return [names[i] for i in whole(pl.Series(names, dtype=pl.String)).arg_sort()] if names else []
