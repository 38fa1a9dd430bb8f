"""The hub: the one process that the actors and the learner both talk to."""

from dataclasses import dataclass, field
from operator import add
from time import monotonic
from typing import Any, NamedTuple

from replaylab.learners.api.protocols import State

HUB = "training"  # name of its process within the run
PAUSE = 0.01  # seconds between two calls of actors that wait, all of them together
SILENCE = 60.0  # seconds after which an actor that has not called counts as silent
BYTES = 2**28  # bytes of weights that all actors together get in a second, at most


class Report(NamedTuple):
    """Steps that were stored, steps that were lost, and returns and lengths of episodes that ended, since the last."""

    steps: int = 0
    lost: int = 0
    returns: tuple[float, ...] = ()
    lengths: tuple[float, ...] = ()


class Grant(NamedTuple):
    """Permission for so many time steps; 0: the actor waits for `pause` seconds and calls again.

    `progress` in [0, 1] is for schedules of exploration. `weights`, None if the actor keeps its own, have had `version`
    updates.
    """

    length: int
    pause: float
    progress: float
    version: int
    weights: State | None


@dataclass
class ActorSlot:
    """The newest life of one of the N actors: its steps under way, its weights, and when it called or was started."""

    life: int = -1
    granted: int = 0
    version: int = 0
    weights_at: float = 0.0
    heard_at: float = field(default_factory=monotonic)


class Hub:
    """Grants steps to actors, and passes on weights and reports.

    An actor may step while the steps that are stored or granted, all together, are below `allowed`, which the learner
    raises with every update. So both sides wait for each other within bounds, as with Reverb's `SampleToInsertRatio`.

    Args:
        count: N actors.
        envs: E environments of each actor.
        stored: Steps that are stored already.
    """

    def __init__(self, count: int, envs: int, stored: int = 0) -> None:
        self._slots = [ActorSlot() for _ in range(count)]
        self._envs, self._stored, self._lost, self._deaths = envs, stored, 0, 0
        self._allowed, self._is_end, self._progress, self._version = 0, False, 0.0, -1
        self._weights: State | None = None
        self._weights_period = 0.0
        self._report, self._figures = Report(), dict[str, Any]()
        self._waited, self._begun_at = 0.0, monotonic()

    def exchange(self, number: int, life: int, report: Report, version: int, wanted: int) -> Grant | None:
        """Take an actor's report since its last call, and return what it may do next.

        Args:
            number: Its slot.
            life: Rises with every restart of the actor. What the previous life was granted and has not reported counts
                as lost. If the slot has a newer life, the answer is None.
            report: Results since its last call.
            version: Number of updates of its weights.
            wanted: Time steps that it would like to take.
        """
        slot = self._slots[number]
        if life < slot.life:
            return None
        if life > slot.life:
            report = report._replace(lost=report.lost + slot.granted)
            self._deaths += slot.life >= 0
            slot.life = life
        self._stored += report.steps
        self._lost += report.lost
        self._report = Report(*map(add, self._report, report))
        slot.granted, slot.version, slot.heard_at = 0, version, monotonic()
        room = self._allowed - self._stored - self._granted
        if self._version < 0 or room <= 0 or (room < wanted * self._envs and not self._is_end):
            pause = PAUSE * len(self._slots)
            self._waited += pause
            return Grant(0, pause, self._progress, version, None)
        length = min(wanted, -(-room // self._envs))
        slot.granted = length * self._envs
        if version == self._version or (version >= 0 and slot.heard_at < slot.weights_at + self._weights_period):
            return Grant(length, 0.0, self._progress, version, None)
        slot.weights_at = slot.heard_at
        return Grant(length, 0.0, self._progress, self._version, self._weights)

    def publish(
        self, version: int, weights: State | None, progress: float, allowed: int, is_end: bool, figures: dict[str, Any]
    ) -> tuple[Report, list[int]]:
        """Take the learner's news, and return the actors'.

        Args:
            version: Number of updates of the newest weights.
            weights: These weights; None: unchanged.
            progress: Training progress.
            allowed: Steps that may be stored, all together.
            is_end: Whether `allowed` is the end of training, so that the last grants may be short.
            figures: Figures of the training for `read`; empty: unchanged.

        Returns:
            The results of all actors since the last call; and the slots of silent actors, whose grants pass to others.
        """
        self._progress, self._allowed, self._is_end = progress, allowed, is_end
        if weights is not None:
            self._version, self._weights = version, weights
            self._weights_period = len(self._slots) * sum(array.nbytes for array in weights.values()) / BYTES
        self._figures = figures or self._figures
        silent = self._silent
        for i in silent:
            self._slots[i].granted = 0
        report, self._report = self._report, Report()
        return report, silent

    def read(self) -> dict[str, Any]:
        """Return the learner's last figures, with those of the actors; empty before the first."""
        seconds = max(monotonic() - self._begun_at, 1e-9) * len(self._slots)
        return self._figures and self._figures | {
            "actors": len(self._slots),
            "actor_losses": self._deaths,
            "lost_actor_steps": self._lost,
            "silent_actors": len(self._silent),
            "actors_wait": min(self._waited / seconds, 1.0),
            "weights_age": sum(self._version - slot.version for slot in self._slots) / len(self._slots),
            "granted_steps": self._granted,
        }

    @property
    def _silent(self) -> list[int]:
        return [i for i, slot in enumerate(self._slots) if monotonic() - slot.heard_at > SILENCE]

    @property
    def _granted(self) -> int:
        return sum(slot.granted for slot in self._slots)
