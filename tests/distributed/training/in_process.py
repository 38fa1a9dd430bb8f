"""Actors in this process: they do what they are asked for when it is waited for, and die when a test reports it."""

from dataclasses import dataclass, field

import numpy as np

from replaylab.distributed.replay.shards.transport import ShardLost
from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.loop import perform
from replaylab.distributed.training.options import Actors, Shards
from replaylab.learners import Callbacks
from tests.distributed.replay.in_process import InProcess


@dataclass
class Answer:
    """Reply of an actor to a call, which begins if it has no arguments; none if the actor is dead."""

    client: object
    arguments: tuple

    def ready(self):
        return True

    def result(self):
        client = self.client
        assert not client.launcher.never(client)
        if self.arguments and client.launcher.dying(client):
            client.dead = True
        if client.dead:
            raise ShardLost("killed")
        if not self.arguments:
            client.actor = Actor(*client.made_of)
            return None
        report = client.actor.step(*self.arguments)
        client.launcher.versions.append(self.arguments[0])
        return report


@dataclass
class Client:
    """An actor, made by its first call, `begin`."""

    launcher: object
    number: int
    life: int
    made_of: tuple
    actor: object = None
    dead: bool = False

    def call(self, method, *arguments, parcel=None):
        assert method == ("step" if arguments else "begin")
        if self.dead:
            raise ShardLost("killed")
        return Answer(self, (*arguments, parcel) if arguments else ())

    def stop(self):
        self.dead = True


@dataclass
class Launcher:
    """Starts actors in this process.

    Attributes:
        dying: Says of a client, before it answers, whether it dies now.
        never: Says of a client whether it never begins.
        busy: Says of a client, each time one looks, whether its answer is yet to come.
        versions: Of the weights of every call that was answered.
    """

    declare: object
    writer: object
    dying: object = lambda client: False
    never: object = lambda client: False
    busy: object = lambda client: False
    started: list = field(default_factory=list)
    versions: list = field(default_factory=list)

    def start(self, number, life):
        self.started.append(Client(self, number, life, (self.declare(number, life), self.writer(number))))
        return self.started[-1]

    def publish(self, weights):
        return {name: np.array(array) for name, array in weights.items()}

    def ready(self, pendings, seconds):
        assert pendings
        return [not (self.never(one.client) or self.busy(one.client)) for one in pendings]


class StopError(Exception):
    """A run is cut off."""


def stops(after):
    """A hook that cuts a run off after so many steps."""

    def stop(now):
        if now >= after:
            raise StopError

    return Callbacks(progress=stop)


TWO = Actors(2), Shards(2)


def trained(
    configuration, actors=TWO[0], shards=TWO[1], *, seed=0, checkpoints=None, resume=None, made=Launcher, **options
):
    """Train in this process; return the metrics, the run and the launcher."""
    fates = {name: options.pop(name) for name in ("dying", "never", "busy") if name in options}
    run, stages = LearnerRun(configuration, seed, actors, **options), []

    def launcher(declare, writer):
        stages.append(made(declare, writer, **fates))
        return stages[0]

    metrics = perform(run, actors, shards, checkpoints, resume, InProcess(), launcher)
    return metrics, run, stages[0]
