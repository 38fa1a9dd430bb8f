"""Shards in this process, which tests let die: plain `Shard` objects behind the calls of a client."""

import pickle
from contextlib import contextmanager
from threading import Event, RLock
from unittest.mock import patch

from replaylab.distributed.replay.shard import ActorLost, Shard


class Pending:
    """An answer that is computed when it is waited for, after those of earlier calls."""

    def __init__(self, client, message):
        self.client, self.message = client, message
        self.done, self.answer, self.error = False, None, None

    def execute(self):
        method, arguments = pickle.loads(self.message)
        try:
            self.answer = pickle.loads(pickle.dumps(getattr(self.client.shard, method)(*arguments)))
        except Exception as error:
            self.error = error
        self.done = True

    def ready(self):
        return True

    def result(self):
        self.client.work(self)
        if self.error is not None:
            raise self.error
        return self.answer


class Client:
    """A shard with a queue of calls. It restarts at the first call after it died, unless it is `held` back."""

    def __init__(self, declaration):
        self.declaration, self.restarts = declaration, 0
        self.queue, self.dead, self.held, self.closed, self.calls = [], False, False, False, []
        self.shard, self.lock = Shard(declaration), RLock()

    def __reduce__(self):
        return _same, (id(self),)

    def call(self, method, *arguments):
        if self.closed:
            raise ActorLost("closed", for_good=True)
        if self.dead and self.held:
            raise ActorLost("not restarted yet")
        if self.dead:
            self.restarts += 1
            self.shard, self.dead = Shard(self.declaration, self.restarts), False
        self.calls.append(method)
        self.queue.append(Pending(self, pickle.dumps((method, arguments))))
        return self.queue[-1]

    def work(self, last=None):
        """Execute calls in order, up to the given one, or all."""
        with self.lock:
            while self.queue and (last is None or not last.done):
                self.queue.pop(0).execute()

    def die(self, answered=0):
        """Die after so many more calls are answered."""
        for pending in self.queue[:answered]:
            pending.execute()
        for pending in self.queue[answered:]:
            pending.error, pending.done = ActorLost("killed"), True
        self.queue.clear()
        self.shard.save = lambda _: Event().wait()  # no snapshots in the background any more
        self.dead = True

    def kill(self):
        if not self.closed:
            self.die()
            self.closed = True


CLIENTS = {}


def _same(key):
    """A client sent to "another process" is the same one."""
    return CLIENTS[key]


class Local:
    """Starts shards in this process."""

    def __init__(self):
        self.clients, self.declare = [], lambda declared: declared

    def connect(self, options, opened):
        def start(run, declarations):
            new = [Client(self.declare(pickle.loads(pickle.dumps(declared)))) for declared in declarations]
            CLIENTS.update({id(client): client for client in new})
            self.clients += new
            return new

        return start


@contextmanager
def shards_here():
    """Let the shards of new replays be in this process."""
    local = Local()
    with patch("replaylab.distributed.replay.remote_replay.connect", local.connect):
        yield local
