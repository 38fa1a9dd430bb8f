"""Shards in this process: the transport of most tests, with shards that die when a test reports it."""

import pickle
from dataclasses import dataclass, field

from replaylab.distributed.replay.shards.packing import answered, packed, unpacked
from replaylab.distributed.replay.shards.shard import Shard
from replaylab.distributed.replay.shards.transport import ShardLost


class Pending:
    """An answer that is made when the shard comes to it: at the latest when it is waited for."""

    def __init__(self, client, message, parcel):
        self.client, self.message, self.parcel = client, message, parcel
        self.answer = self.error = None
        self.made = False

    def make(self):
        try:
            self.answer = unpacked(pickle.loads(pickle.dumps(answered(self.client.shard, self.message, self.parcel))))
        except Exception as error:
            self.error = error
        self.made = True

    def ready(self):
        return self.made or self.client.dead or self.client.works()

    def result(self):
        if not self.made:
            self.client.work(self)
        if not self.made:
            raise ShardLost("killed")
        if self.error is not None:
            raise self.error
        return self.answer


class Client:
    """A shard with a queue of calls, which it works off when an answer is waited for."""

    def __init__(self, declaration):
        self.number, self.epoch = declaration.number, declaration.epoch
        self.shard, self.queue, self.dead, self.stuck = Shard(declaration), [], False, False

    def call(self, method, *arguments, parcel=None):
        if self.dead:
            raise ShardLost("killed")
        pending = Pending(self, pickle.loads(pickle.dumps(packed((method, arguments, None)))), parcel)
        self.queue.append(pending)
        return pending

    def works(self):
        self.work()
        return True

    def work(self, last=None):
        """Answer calls in their order, up to the one given, or all."""
        while self.queue and not self.dead and not self.stuck:
            pending = self.queue.pop(0)
            pending.make()
            if pending is last:
                return

    def die(self, answered=0):
        """Die after so many calls more are answered, whose answers come."""
        for pending in self.queue[:answered]:
            pending.make()
        self.queue.clear()
        self.dead = True

    stop = die


@dataclass
class InProcess:
    """Starts shards in this process."""

    clients: list = field(default_factory=list)
    room: int = 2**40
    background: bool = False

    def start(self, declaration):
        self.clients.append(Client(pickle.loads(pickle.dumps(declaration))))
        return self.clients[-1]

    def newest(self, number, after):
        found = [one for one in self.clients if one.number == number and one.epoch > after and not one.dead]
        return max(found, key=lambda one: one.epoch, default=None)

    def parcel(self, contents):
        return pickle.loads(pickle.dumps(packed(contents)))

    def batch_room(self):
        return self.room

    def shard(self, number):
        """The live shard of a slot."""
        return self.newest(number, -1)


def unable(start, error):
    """Return `start` of shards whose `begin` raises an error."""

    def started(declaration):
        client = start(declaration)

        def begin():
            raise error

        client.shard.begin = begin
        return client

    return started
