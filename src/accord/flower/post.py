"""Letters to named clients and their replies, over a Flower grid that may lose, repeat or delay them.

Flower knows nodes by numbers that change when a node starts anew; here clients are known by the name that
their node is configured with. A reply is accepted once, from the client that was asked, if it is what was
agreed; else it is refused by name and asked for again. Nodes that come and go are met while waiting.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

import accord
from accord.flower.events import Events
from accord.flower.wire import RefusedError, letter, opened, size_of

_LOOK = 2.0
"""Seconds between looks at which nodes are there, while waiting."""

_TIMES = 5
"""The most often that a letter is sent to a client in one exchange; pauses after bad replies double."""


class Patience(NamedTuple):
    """``deadline``: seconds an exchange may take; ``resend``: seconds after which a letter without a reply
    is sent again; ``pause``: seconds before a letter is sent again to a node that failed; ``poll``: seconds
    between looks for replies."""

    deadline: float = 600.0
    resend: float = 120.0
    pause: float = 2.0
    poll: float = 0.1


class Traffic(NamedTuple):
    """Bytes of the arrays that were sent ``up`` and ``down``."""

    up: int = 0
    down: int = 0


class _Sent(NamedTuple):
    client: str
    exchange: int
    until: float


class _Hello(NamedTuple):
    node: int
    until: float


class Post:
    """The clients that are there, and the letters to them.

    ``greeting`` is what every node is asked when it comes; ``check`` raises for a card, the answer, that the
    run cannot use. ``cards``: the answers by name; ``failed``: why nodes are of no use; ``refused``: what
    was wrong with each client's last bad reply.
    """

    def __init__(
        self, grid: Grid, greeting: dict[str, Any], events: Events, patience=Patience(),  # noqa: B008
        check: Callable[[dict[str, Any]], Any] = lambda card: None,
    ):  # fmt: skip
        self.grid, self.events, self.patience = grid, events, patience
        self._check = check
        self._greeting = {"kind": "hello", **greeting}
        self.cards: dict[str, dict[str, Any]] = {}
        self.failed: dict[int, str] = {}
        self.refused: dict[str, str] = {}
        self._nodes: dict[str, int] = {}
        self._greeted: dict[int, str | None] = {}
        self._due: dict[int, float] = {}
        self._silent: set[int] = set()
        self._hellos: dict[str, _Hello] = {}
        self._outstanding: dict[str, _Sent] = {}
        self._exchange = 0
        self._looked = 0.0
        self.traffic = Traffic()

    @property
    def present(self) -> list[str]:
        """The names of the clients whose nodes are there."""
        return [name for name in self.cards if name in self._nodes]

    def node_of(self, name: str) -> int | None:
        """The node that a client has at present."""
        return self._nodes.get(name)

    def read(self, messages, accept) -> dict[str, Any]:
        """What ``accept`` makes of messages that somebody else has fetched, by client, as in ``exchange``."""
        names = {node: name for name, node in self._nodes.items()}
        got: dict[str, Any] = {}
        for message in messages:
            name = names.get(message.metadata.src_node_id, "")
            try:
                if message.has_error():
                    raise RefusedError(" ".join(str(message.error.reason).split())[:200])
                about, arrays = opened(message.content)
                if about.get("client") != name or about.get("status") != "ok":
                    raise RefusedError(f"{about.get('client')!r} says {about.get('why')!r}")
                got[name] = accept(name, about, arrays)
            except RefusedError as error:
                self.events("reply_refused", client=name, why=str(error))
        return got

    def look(self, at_once: bool = True) -> None:
        """Greets nodes that have come, and forgets those that have gone."""
        now = time.monotonic()
        if not at_once and now - self._looked < _LOOK:
            return
        self._looked = now
        there = set(self.grid.get_node_ids())
        for node in [n for n in self._greeted if n not in there]:
            name = self._greeted.pop(node)
            if name is not None and self._nodes.get(name) == node:
                del self._nodes[name]
                self.events("node_gone", client=name)
        self._due = {node: due for node, due in self._due.items() if node in there}
        self._hellos = {m: hello for m, hello in self._hellos.items() if hello.node in there}
        # Who has not said its name, or not one of its own, is asked again after a while.
        nameless = [n for n in sorted(there) if self._greeted.get(n) is None]
        new = [node for node in nameless if self._due.get(node, now) <= now]
        sent_to = self._push([(node, letter(self._greeting, {})) for node in new], "query")
        for node, sent in zip(new, sent_to, strict=True):
            # Who has not answered a greeting is greeted again, but no longer waited for.
            self._silent |= {node} & set(self._due)
            self._due[node] = until = now + self.patience.resend
            if sent:
                self._greeted[node] = None
                self._hellos[sent] = _Hello(node, until)

    def forget(self, name: str) -> None:
        """Has a client say again who it is and what it has."""
        self.cards.pop(name, None)
        node = self._nodes.pop(name, None)
        if node is not None:
            self._greeted[node] = None
            self._due.pop(node, None)

    def dismiss(self, name: str) -> None:
        """Counts a client's node as gone, until it starts anew."""
        self._nodes.pop(name, None)

    def meet(self, seconds: float, enough: Callable[[], bool]) -> None:
        """Waits for nodes to come and say who they are, until there are enough, or for so long."""
        end = time.monotonic() + seconds
        while True:
            self.look(at_once=False)
            busy = self._receive(None, {}, lambda *_: None)
            now = time.monotonic()
            awaited = [h for h in self._hellos.values() if h.node not in self._silent]
            expected = any(now < hello.until for hello in awaited)
            if (not expected and enough()) or now > end:
                return
            if not busy:
                time.sleep(self.patience.poll)

    def exchange(
        self,
        letters: dict[str, Callable[[frozenset[str]], RecordDict]],
        kind: str,
        accept: Callable[[str, dict[str, Any], Any], Any],
        enough: Callable[[dict[str, Any]], bool] = lambda got: False,
    ) -> dict[str, Any]:
        """What ``accept(name, about, arrays)`` makes of the replies, by name, of all who replied in time.

        ``letters[name](lost)`` is the letter to a client that has said to have ``lost`` its "state", or a
        "text" of the server; ``kind`` is Flower's message type. ``accept`` raises ``RefusedError`` for a
        reply that is not what was agreed. It ends when all have replied, or at the deadline; after half of
        that time also where ``enough(got)`` says so.
        """
        self._exchange += 1
        self._forget()
        waiting = {name: _Turn(make) for name, make in letters.items()}
        got: dict[str, Any] = {}
        began = time.monotonic()

        def take(name: str, about, arrays) -> None:
            turn = waiting.get(name)
            if name in got or turn is None:
                self.events("duplicate_reply", client=name)
                return
            status = about.get("status")
            if status == "lost":
                what = str(about.get("what"))
                if what == "state":
                    self.events("state_lost", client=name)
                turn.lost |= {what}
                turn.due = 0.0 if turn.tries < _TIMES else None
                return
            try:
                if status != "ok":
                    said = "the site says: " if status == "failed" else ""
                    raise RefusedError(f"{said}{about.get('why')}")
                got[name] = accept(name, about, arrays)
                self.refused.pop(name, None)
                if about.get("again"):
                    self.events("reply_repeated", client=name)
            except RefusedError as error:
                self.events("reply_refused", client=name, why=str(error))
                self.refused[name] = str(error)
                pause = self.patience.pause * 2 ** (turn.tries - 1)
                turn.due = time.monotonic() + pause if turn.tries < _TIMES else None

        while len(got) < len(waiting):
            now = time.monotonic()
            late = now - began
            if late > self.patience.deadline:
                break
            if late > self.patience.deadline / 2 and enough(got):
                break
            turns = {n: t for n, t in waiting.items() if n not in got}
            if all(t.due is None for t in turns.values()):
                break
            self._send({n: t for n, t in turns.items() if t.due is not None and t.due <= now}, kind)
            if not self._receive(self._exchange, turns, take):
                self.look(at_once=False)
                time.sleep(self.patience.poll)
        for name in waiting:
            if name not in got:
                self.events("no_reply", client=name)
        return got

    def _forget(self) -> None:
        """Gives up on replies that can no longer come."""
        now = time.monotonic()
        self._outstanding = {m: s for m, s in self._outstanding.items() if now < s.until}

    def _send(self, turns, kind: str) -> None:
        there = {name: turn for name, turn in turns.items() if name in self._nodes}
        letters = [(self._nodes[name], turn.make(turn.lost)) for name, turn in there.items()]
        sent = self._push(letters, kind)
        now = time.monotonic()
        for turn in turns.values():
            turn.due = now + self.patience.pause
        for (name, turn), (_, content), message in zip(there.items(), letters, sent, strict=True):
            if not message:
                continue
            self._outstanding[message] = _Sent(name, self._exchange, now + self._lifetime)
            if turn.tries:
                self.events("sent_again", client=name)
            turn.tries += 1
            turn.due = now + self.patience.resend
            down = self.traffic.down + size_of(content["arrays"])
            self.traffic = self.traffic._replace(down=down)

    @property
    def _lifetime(self) -> float:
        """Seconds for which a letter and its reply are of use."""
        return self.patience.deadline + self.patience.resend

    def _push(self, letters, kind: str) -> list[str | None]:
        if not letters:
            return []
        messages = [Message(content, node, kind, ttl=self._lifetime) for node, content in letters]
        return list(self.grid.push_messages(messages))

    def _receive(self, exchange, turns, take) -> bool:
        """Looks for replies once; True where something came."""
        asked = {**self._outstanding, **dict.fromkeys(self._hellos)}
        replies = list(self.grid.pull_messages(list(asked))) if asked else []
        hellos = dict(self._hellos)
        for reply in replies:
            message = reply.metadata.reply_to_message_id
            # What was answered is not asked for again; a second reply in the same batch is told of.
            self._outstanding.pop(message, None)
            self._hellos.pop(message, None)
            sent = asked.get(message)
            if message in hellos:
                self._hello(hellos[message].node, reply, turns)
            elif sent is None:
                self.events("unknown_reply")
            elif reply.has_error():
                self._failure(sent, reply.error, turns)
            elif sent.exchange != exchange:
                self.events("late_reply", client=sent.client)
            else:
                self._reply(sent, reply, take)
        return bool(replies)

    def _reply(self, sent: _Sent, reply: Message, take) -> None:
        try:
            about, arrays = opened(reply.content)
            told = str(about.get("client"))
            if told != sent.client:
                raise RefusedError(f"it comes from a node that calls itself {told!r}")
        except RefusedError as error:
            about, arrays = {"status": "strange", "why": str(error)}, ArrayRecord()
        self.traffic = self.traffic._replace(up=self.traffic.up + size_of(arrays))
        take(sent.client, about, arrays)

    def _failure(self, sent: _Sent, error, turns) -> None:
        reason = " ".join(str(error.reason).split())[:200]
        self.events("node_failed", client=sent.client, code=int(error.code), why=reason)
        if sent.client in turns:
            turns[sent.client].due = time.monotonic() + self.patience.pause

    def _hello(self, node: int, reply: Message, turns) -> None:
        """A node says who it is."""
        name = f"node {node}"
        try:
            if reply.has_error():
                raise RefusedError(" ".join(str(reply.error.reason).split())[:200])
            about, _ = opened(reply.content)
            name = str(about.get("client") or name)
            if about.get("status") != "ok":
                raise RefusedError(str(about.get("why")))
            version, rows = str(about.get("version")), about.get("rows")
            if version.split(".")[:2] != accord.__version__.split(".")[:2]:
                raise RefusedError(
                    f"{name} has Accord {version}, the server {accord.__version__}; install the same at both"
                )
            if type(rows) is not int or rows < 0:
                raise RefusedError(f"its number of rows is {rows!r}")
            self._check(about)
            if self._nodes.get(name, node) != node:
                raise RefusedError(f"{name!r} is the name of another node, too; give each its own")
        except (ValueError, TypeError, KeyError) as error:
            self.failed[node] = f"{name}: {error}"
            self.events("node_refused", node=str(node), client=name, why=str(error))
            return
        self.failed.pop(node, None)
        back = name in self.cards
        self.cards[name] = about
        self._nodes[name], self._greeted[node] = node, name
        self.events("node_back" if back else "node_met", client=name, rows=rows)
        if name in turns:
            turns[name].due = 0.0


class _Turn:
    """One client in an exchange: its letter, how often it was sent, when it is due, None for no more."""

    def __init__(self, make):
        self.make, self.tries = make, 0
        self.due: float | None = 0.0
        self.lost: frozenset[str] = frozenset()
