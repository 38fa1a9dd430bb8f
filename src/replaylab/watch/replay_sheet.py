"""What a replay holds and replays most: the steps that stand out, with all that is known of them.

Shapes: R replicas, N stored steps, n steps of a row, H and W pixels.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, instance, optional, takes, whole
from replaylab.envs import Screen
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners.api.hooks import TrainingRun
from replaylab.learners.api.protocols import Agents, ProbedAgents
from replaylab.replay import InspectableReplay, SamplerReplay, require

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PLACES = 6
"""Steps of a row, unless more or fewer are asked for."""

_LEVEL = 1e-9
"""Relative difference below which probabilities are the same."""


@dataclass(frozen=True, eq=False)
class ShownSteps:
    """A row of a sheet.

    Attributes:
        title: What they have in common.
        id: int64 (n,).
        age: Steps stored since in the same replica, int64 (n,): environment steps, if each is one of the replica's.
        replays: How often each was drawn, int64 (n,); −1 where that is not counted.
        likelihood: N times the probability that a row of the next batch is the step, so 1 under uniform draws;
            float64 (n,), NaN where there is no exact law.
        td_error: δ by the agents of now, float64 (n,); NaN without agents that tell it.
        reward: As it was stored, float64 (n,).
        ended: Whether the episode ended with it, bool (n,).
        action: What was done, in words, (n,).
        frames: What was seen before, uint8 (n, H, W) grey or (n, H, W, 3).
    """

    title: str
    id: Ids
    age: Ids
    replays: Ids
    likelihood: Floats
    td_error: Floats
    reward: Floats
    ended: npt.NDArray[np.bool_]
    action: npt.NDArray[np.str_]
    frames: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, eq=False)
class ReplaySheet:
    """The steps of a replay that stand out.

    Attributes:
        rows: Each of at most as many steps as were asked for.
        stored: N.
        waiting: How many of them were never replayed; None where that is not counted.
    """

    rows: tuple[ShownSteps, ...]
    stored: int
    waiting: int | None

    def __str__(self) -> str:
        never = "" if self.waiting is None else f", {self.waiting:,} of them not replayed yet"
        return f"{self.stored:,} steps stored{never}"

    def to_bytes(self) -> bytes:
        """Return the sheet as the bytes of a compressed ``.npz`` file, the same for the same sheet."""
        arrays: dict[str, Any] = {
            f"{i}/{field.name}": getattr(row, field.name) for i, row in enumerate(self.rows) for field in fields(row)
        }
        file = io.BytesIO()
        waiting = -1 if self.waiting is None else self.waiting
        np.savez_compressed(file, allow_pickle=False, stored=self.stored, waiting=waiting, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> ReplaySheet:
        """Return the sheet that `to_bytes` gave away."""
        with np.load(io.BytesIO(content)) as arrays:
            numbers = sorted({int(name.partition("/")[0]) for name in arrays if "/" in name})
            rows = [{field.name: arrays[f"{i}/{field.name}"] for field in fields(ShownSteps)} for i in numbers]
            waiting = int(arrays["waiting"])
            made = tuple(ShownSteps(**row | {"title": str(row["title"])}) for row in rows)
            return cls(made, int(arrays["stored"]), None if waiting < 0 else waiting)


@takes(
    places=whole(most=LARGEST_AXIS),
    replica=whole(0),
    screen=instance(Screen, "a Screen"),
    batch_size=optional(whole()),
)
def replay_sheet(
    replay: InspectableReplay,
    *,
    places: int = PLACES,
    replica: int = 0,
    screen: Screen = Screen(),  # noqa: B008 - frozen
    agents: Agents | None = None,
    batch_size: int | None = None,
    progress: float | None = None,
) -> ReplaySheet:
    """Return the steps of a replay that are drawn most and least likely now, and those that were replayed most.

    Steps that were never replayed have the priority that new steps get, and none of their own; the first two rows are
    of the others, as soon as there are any (and replays are counted). Of equal steps the newer come first; where there
    are more than places left, those shown are spread evenly over them, from the newest to the oldest. If all are
    equally likely, one row takes the place of two. Nothing is drawn and nothing changed.

    Args:
        replay: Its field ``obs`` holds pictures, see `Screen.frames`.
        places: Steps of a row, at most.
        replica: Which of R.
        screen: How observations are drawn; `Screen.of` an environment.
        agents: Those of all replicas, for the TD errors of now.
        batch_size: B, for the samplers whose law depends on it.
        progress: Training progress, for those whose law depends on it.

    Raises:
        ConfigError: The observations are no pictures, there is no such replica, or the replay shows no single steps.
        EmptyBufferError: Nothing is stored.
    """
    require(replay, InspectableReplay, "a sheet of what is replayed")
    view = _View(replay, replica)
    law = view.law(batch_size, progress)
    chosen = dict(_rows(view, law, places))
    every = np.concatenate(list(chosen.values()))
    told = view.told(every, law, agents, screen)
    ends = np.cumsum([len(one) for one in chosen.values()])[:-1]
    parts = {name: np.split(column, ends) for name, column in told.items()}
    rows = tuple(
        ShownSteps(title, **{name: columns[i] for name, columns in parts.items()}) for i, title in enumerate(chosen)
    )
    waiting = None if view.replays is None else int((view.replays == 0).sum())
    return ReplaySheet(rows, len(view.ids), waiting)


def sheet_of(run: TrainingRun, replica: int, batch_size: int, places: int = PLACES) -> ReplaySheet:
    """Return the sheet of one replica in training; `batch_size` is the learner's, and errors are `replay_sheet`'s."""
    return replay_sheet(
        cast("InspectableReplay", run.replay),
        places=places,
        replica=replica,
        screen=Screen.of(run.env),
        agents=run.agents,
        batch_size=batch_size or None,
        progress=float(np.broadcast_to(run.clock.progress, len(run.seeds))[replica]),
    )


def standing_out(values: npt.NDArray[Any], places: int) -> npt.NDArray[np.intp]:
    """Return where the largest values are, at most so many, the largest first; of equal ones the later come first.

    Where more are equal than places are left, those are spread evenly over them, from the last to the first.

    Args:
        values: (N,), in the order of age, the oldest first.
        places: At least 1.

    Example:
        >>> standing_out(np.array([5, 1, 9, 1, 1, 1, 1, 5]), 6).tolist()
        [2, 7, 0, 6, 4, 1]
    """
    order = np.lexsort((-np.arange(len(values)), -values))
    if len(values) <= places:
        return order
    edge = values[order[places - 1]]
    sure, equal = order[values[order] > edge], order[values[order] == edge]
    spread = np.linspace(0, len(equal) - 1, places - len(sure)).round().astype(np.intp)
    return np.concatenate([sure, equal[spread]])


def _rows(view: _View, law: Floats | None, places: int) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Yield each row's title, and where its steps are among the stored ones."""
    replayed = np.arange(len(view.ids))
    if view.replays is not None and view.replays.any():
        replayed = np.flatnonzero(view.replays)
    if law is not None:
        shown = replayed if law[replayed].any() else np.arange(len(law))  # a queue's, say, were drawn for good
        own = law[shown]
        if np.ptp(law) <= _LEVEL * law.max():
            yield "All equally likely", shown[standing_out(np.zeros(len(own)), places)]
        else:
            named = isinstance(view.replay, SamplerReplay) and view.replay.sampler.keeps_priorities
            of = "{} priority" if named else "{} probability"
            drawn = own > 0.0
            yield of.format("Highest"), shown[drawn][standing_out(own[drawn], places)]
            yield of.format("Lowest"), shown[standing_out(-own, places)]
    if view.replays is not None and view.replays.any():
        yield "Replayed most", replayed[standing_out(view.replays[replayed], places)]
    elif law is None:
        yield "Newest", np.arange(len(view.ids))[::-1][:places]


class _View:
    """One replica of a replay.

    Attributes:
        ids: Of the stored steps, (N,), oldest first.
        replays: How often each was drawn, (N,); None where that is not counted.
    """

    def __init__(self, replay: InspectableReplay, replica: int) -> None:
        self.replay, self._replica, self._all = replay, replica, replay.stored_ids()
        if replica >= len(self._all):
            raise ConfigError(f"`replica` must be below {len(self._all)}, the replay's replicas, but got {replica}")
        if not all(len(one) for one in self._all):
            raise EmptyBufferError("the replay is empty: there is no step to be shown")
        self.ids = self._all[replica]
        try:
            self.replays: Ids | None = replay.replay_counts()[replica]
        except ConfigError:
            self.replays = None

    def law(self, batch_size: int | None, progress: float | None) -> Floats | None:
        """Return N·P of each stored step, (N,); None where the sampler has no exact law."""
        if isinstance(self.replay, SamplerReplay) and not self.replay.sampler.has_law:
            return None
        asked = self._for_all(self.ids)
        return self._own(self.replay.probabilities(asked, batch_size=batch_size, progress=progress)) * len(self.ids)

    def told(
        self, places: npt.NDArray[np.intp], law: Floats | None, agents: Agents | None, screen: Screen
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of `ShownSteps` of the steps at these places, (n, ...)."""
        unknown, ids = np.full(len(places), np.nan), self._for_all(self.ids[places])
        columns = self.replay.get(ids)
        seen = columns["obs"]
        frames = screen.frames(self._own(seen) if isinstance(seen, np.ndarray) else seen)
        if frames is None:
            raise ConfigError(
                "a sheet of what is replayed needs observations that are pictures, uint8 (H, W), (H, W, 3) or stacks "
                "of them, or boards with named channels, as MinAtar's are; these are none"
            )
        ended = self._own(columns["terminated"]) | self._own(columns["truncated"])
        error = unknown
        if isinstance(agents, ProbedAgents) and self.replay.replicas is not None:
            error = self._own(agents.probe(self.replay.as_batch(ids)).td_error).astype(np.float64)
        return {
            "id": self.ids[places],
            "age": self.ids[-1] - self.ids[places],
            "replays": np.full(len(places), -1) if self.replays is None else self.replays[places],
            "likelihood": unknown if law is None else law[places],
            "td_error": error,
            "reward": self._own(columns["reward"]).astype(np.float64),
            "ended": ended.astype(np.bool_),
            "action": np.array([screen.action(one) for one in self._own(columns["action"])], np.str_),
            "frames": np.ascontiguousarray(frames),
        }

    def _for_all(self, ids: Ids) -> Ids:
        """Return ids as the replay takes them: of each other replica as many of its own, which nobody looks at."""
        if self.replay.replicas is None:
            return ids
        others = [np.resize(one, len(ids)) for one in self._all]
        others[self._replica] = ids
        return np.stack(others)

    def _own(self, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return answer if self.replay.replicas is None else answer[self._replica]
