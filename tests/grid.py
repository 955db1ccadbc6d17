"""A Flower grid inside the process: the real client apps, and faults where a test wants them."""

import itertools
from collections.abc import Callable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# A message is made within a task, of which there is none here.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class LocalGrid(Grid):
    """Nodes that answer when their replies are pulled.

    ``before(name, message)`` may return a message in place of that to a node, or None to lose it;
    ``after(name, message, reply)`` gives the list of replies that arrive.
    """

    def __init__(self, apps: dict[str, Any], configs: dict[str, dict[str, Any]], run_config=None):
        self.names = dict(enumerate(apps, 100))
        self._apps = apps
        self._contexts = {
            name: Context(
                1, node, {"client": name, **configs[name]}, RecordDict(), run_config or {}
            )
            for node, name in self.names.items()
        }
        self.gone: set[str] = set()
        self.before: Callable = lambda name, message: message
        self.after: Callable = lambda name, message, reply: [reply]
        self._count = itertools.count()
        self._waiting: dict[str, tuple[str, Message]] = {}
        self.late: dict[str, list[Message]] = {}
        self.sizes = [0, 0]

    run = None

    def set_run(self, run):
        pass

    def create_message(self, *args, **options):
        raise RuntimeError("a message is made by its constructor")

    def get_node_ids(self):
        return [node for node, name in self.names.items() if name not in self.gone]

    def rename(self, name: str) -> None:
        """The node starts anew under another number, as it does without authentication."""
        self.names = {n: m for n, m in self.names.items() if m != name} | {
            max(self.names) + 1: name
        }

    def push_messages(self, messages):
        ids = []
        for message in messages:
            name = self.names.get(message.metadata.dst_node_id)
            if name is None or name in self.gone:
                ids.append(None)
                continue
            key = str(next(self._count))
            message.metadata.__dict__["_message_id"] = key
            self._waiting[key] = (name, message)
            ids.append(key)
        return ids

    def pull_messages(self, message_ids):
        replies = []
        for key in message_ids:
            replies += self.late.pop(key, [])
            if key not in self._waiting:
                continue
            name, message = self._waiting.pop(key)
            told = self.before(name, message)
            if told is None:
                continue
            try:
                reply = self._apps[name](told, self._contexts[name])
            except Exception as error:
                reply = Message(Error(2, repr(error)), reply_to=message)
            replies += self.after(name, message, reply)
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(list(self.push_messages(messages)))
