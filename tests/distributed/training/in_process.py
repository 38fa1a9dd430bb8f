"""Actors, hub and evaluator in this process: each time the learner looks, every actor takes a turn, or dies."""

import pickle
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import cloudpickle

from replaylab.distributed.replay.shard import ActorLost
from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.hub import HUB
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.loop import perform
from replaylab.distributed.training.options import Actors, Shards
from replaylab.learners import Callbacks, Checkpoints

MOST_RESTARTS, PROCESSES = 5, WeakValueDictionary()


class Answer:
    """An answer that is computed when it is looked at; that to an actor's `run` after as many looks as it has turns."""

    def __init__(self, process, method, arguments):
        self.process, self.call, self.done, self.error, self.value = process, (method, arguments), False, None, None

    def ready(self):
        process, (method, arguments) = self.process, self.call
        if self.done or process.launcher.never(process):
            return self.done
        try:
            self.value = pickle.loads(pickle.dumps(process.call_now("turn" if method == "run" else method, arguments)))
        except Exception as error:
            self.error = error
        self.done = self.error is not None or method != "run" or not self.value
        return self.done

    def result(self):
        assert self.ready()
        if self.error is not None:
            raise self.error
        return self.value


class Process:
    """An object that its first call creates, again after each death."""

    def __init__(self, launcher, name, make, most_restarts):
        self.launcher, self.name, self.make, self.most_restarts = launcher, name, make, most_restarts
        self.object, self.life, self.killed = None, 0, False
        PROCESSES[id(self)] = self

    def call(self, method, *arguments):
        answer = Answer(self, method, arguments)
        if self.name == HUB:
            answer.ready()
        return answer

    def __reduce__(self):
        return _same, (id(self),)

    def call_now(self, method, arguments):
        while self.launcher.dying(self):
            self.object, self.life = None, self.life + 1
            if self.life > self.most_restarts:
                self.killed = True
                break
        if self.killed:
            raise ActorLost("killed")
        if self.object is None:
            self.object = pickle.loads(cloudpickle.dumps(self.make))(self.life)
            self.launcher.created.append(self.object)
        return getattr(self.object, method)(*arguments)

    def kill(self):
        self.killed = True


def _same(key):
    """A process sent to "another process" is the same one."""
    return PROCESSES[key]


@dataclass
class Launcher:
    """Starts processes in this process.

    Attributes:
        dying: Whether a process dies before its next call.
        never: Whether a process does not answer.
        created: All objects of processes.
    """

    dying: object = lambda process: False
    never: object = lambda process: False
    created: list = field(default_factory=list)
    processes: list = field(default_factory=list)

    def start(self, name, make, *, anywhere=False, has_state=False):
        self.processes.append(Process(self, name, make, 0 if has_state else MOST_RESTARTS))
        return self.processes[-1]

    def stop(self):
        for process in self.processes:
            process.kill()

    @property
    def actors(self):
        return [created for created in self.created if isinstance(created, Actor)]


class StopError(Exception):
    """A run is cut off."""


def stops(after):
    """A hook that cuts a run off after so many steps."""

    def stop(now):
        if now >= after:
            raise StopError

    return Callbacks(progress=stop)


TWO = Actors(2, envs=1), Shards(2)


def trained(configuration, actors=TWO[0], shards=TWO[1], *, seed=0, hooks=(), launcher=None, folder=None, **options):
    """Train in this process, with checkpoints every 100 steps in a folder; return metrics, run and launcher."""
    launcher = launcher or Launcher()
    checkpoints = options.pop("checkpoints", folder and Checkpoints(folder, 100))
    run = LearnerRun(configuration, seed, actors, hooks)
    metrics = perform(run, actors, shards, checkpoints, options.pop("resume", None), lambda name: launcher)
    return metrics, run, launcher
