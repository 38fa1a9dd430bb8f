"""Sheets of a replay: the stored steps with the highest and lowest priorities, and those replayed most.

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
"""Default number of steps in a row."""

_LEVEL = 1e-9
"""Relative difference below which probabilities count as equal."""


@dataclass(frozen=True, eq=False)
class ShownSteps:
    """A row of a sheet.

    Attributes:
        title: Title of the row.
        id: int64 (n,).
        age: Steps stored since in the same replica, int64 (n,).
        replays: How often each was drawn, int64 (n,); −1 if replays are not counted.
        likelihood: N times the probability that a row of the next batch is the step, so 1 under uniform draws;
            float64 (n,), NaN if there is no exact sampling probability.
        td_error: δ by the current agents, float64 (n,); NaN without agents that can compute it.
        reward: The stored reward, float64 (n,).
        ended: Whether the episode ended with the step, bool (n,).
        action: Name of the action, (n,).
        frames: The observation before the action, uint8 (n, H, W) grey or (n, H, W, 3).
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
    """The steps of a replay that `replay_sheet` selects.

    Attributes:
        rows: Rows of at most `places` steps each.
        stored: Number of stored steps, N.
        waiting: How many of them were never replayed; None if replays are not counted.
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
        """Return the sheet that `to_bytes` wrote."""
        with np.load(io.BytesIO(content)) as arrays:
            numbers = sorted({int(name.partition("/")[0]) for name in arrays if "/" in name})
            rows = [{field.name: arrays[f"{i}/{field.name}"] for field in fields(ShownSteps)} for i in numbers]
            waiting = int(arrays["waiting"])
            shown = tuple(ShownSteps(**row | {"title": str(row["title"])}) for row in rows)
            return cls(shown, int(arrays["stored"]), None if waiting < 0 else waiting)


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
    """Return the steps of a replay that are most and least likely to be drawn, and those that were replayed most.

    Steps that were never replayed have only the default priority of new steps. So the first two rows show replayed
    steps, as soon as there are any (and replays are counted). Among equal steps newer ones come first; if there are
    more than fit, those shown are spread evenly from the newest to the oldest. If all are equally likely, one row
    replaces the two. The replay is not changed, and nothing is drawn from it.

    Args:
        replay: The replay; its field ``obs`` holds images, see `Screen.frames`.
        places: Largest number of steps in a row.
        replica: Index of the replica.
        screen: Draws observations as images; `Screen.of` an environment.
        agents: Agents of all replicas, for current TD errors.
        batch_size: B, for samplers whose sampling distribution depends on it.
        progress: Training progress, for samplers whose sampling distribution depends on it.

    Raises:
        ConfigError: The observations are not images, there is no such replica, or the replay has no access by step.
        EmptyBufferError: Nothing is stored.

    Example:
        >>> from replaylab.learners import DQN, Hook, TrainingConfig, train
        >>> from replaylab.replay import Prioritized
        >>> class Sheet(Hook):
        ...     def on_end(self, run, over):
        ...         self.sheet = replay_sheet(run.replay, places=3, screen=Screen.of(run.env), agents=run.agents)
        >>> hook, learner = Sheet(), DQN(filters=4, hidden=(16,), learning_starts=64)
        >>> game, sampler = "replaylab/MinAtar-Breakout-v1", Prioritized(beta=0.4)
        >>> config = TrainingConfig(game, learner, sampler, 300, eval_every=None, measure_every=100)
        >>> metrics = train(config, seeds=[0], hooks=[hook])
        >>> [row.title for row in hook.sheet.rows]
        ['Highest priority', 'Lowest priority', 'Replayed most']
    """
    require(replay, InspectableReplay, "a sheet of what is replayed")
    view = _View(replay, replica)
    distribution = view.distribution(batch_size, progress)
    chosen = dict(_rows(view, distribution, places))
    places_shown = np.concatenate(list(chosen.values()))
    row_columns = view.row_columns(places_shown, distribution, agents, screen)
    ends = np.cumsum([len(row_places) for row_places in chosen.values()])[:-1]
    parts = {name: np.split(column, ends) for name, column in row_columns.items()}
    rows = tuple(
        ShownSteps(title, **{name: columns[i] for name, columns in parts.items()}) for i, title in enumerate(chosen)
    )
    waiting = None if view.replays is None else int((view.replays == 0).sum())
    return ReplaySheet(rows, len(view.ids), waiting)


def sheet_of(run: TrainingRun, replica: int, batch_size: int, places: int = PLACES) -> ReplaySheet:
    """Return the sheet of one replica of a run in training; it raises as `replay_sheet` does.

    Args:
        run: The run.
        replica: Index of the replica.
        batch_size: The learner's batch size.
        places: Largest number of steps in a row.
    """
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
    """Return indices of the largest values, the largest first; later ones come first among equal ones.

    If more values are equal than places are left, those returned are spread evenly from the last to the first.

    Args:
        values: (N,), in the order of age, the oldest first.
        places: Largest number of indices, at least 1.

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


def _rows(view: _View, distribution: Floats | None, places: int) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Yield each row's title, and the indices of its steps among the stored ones."""
    replayed = np.arange(len(view.ids))
    if view.replays is not None and view.replays.any():
        replayed = np.flatnonzero(view.replays)
    if distribution is not None:
        # A queue draws each step once: then no replayed step can be drawn again.
        shown = replayed if distribution[replayed].any() else np.arange(len(distribution))
        shown_distribution = distribution[shown]
        if np.ptp(distribution) <= _LEVEL * distribution.max():
            yield "All equally likely", shown[standing_out(np.zeros(len(shown_distribution)), places)]
        else:
            named = isinstance(view.replay, SamplerReplay) and view.replay.sampler.keeps_priorities
            template = "{} priority" if named else "{} probability"
            drawn = shown_distribution > 0.0
            yield template.format("Highest"), shown[drawn][standing_out(shown_distribution[drawn], places)]
            yield template.format("Lowest"), shown[standing_out(-shown_distribution, places)]
    if view.replays is not None and view.replays.any():
        yield "Replayed most", replayed[standing_out(view.replays[replayed], places)]
    elif distribution is None:
        yield "Newest", np.arange(len(view.ids))[::-1][:places]


class _View:
    """One replica of a replay.

    Attributes:
        ids: Ids of the stored steps, (N,), oldest first.
        replays: How often each was drawn, (N,); None if replays are not counted.
    """

    def __init__(self, replay: InspectableReplay, replica: int) -> None:
        self.replay, self._replica, self._all = replay, replica, replay.stored_ids()
        if replica >= len(self._all):
            raise ConfigError(f"`replica` must be below {len(self._all)}, the replay's replicas, but got {replica}")
        if not all(len(ids) for ids in self._all):
            raise EmptyBufferError("the replay is empty: there is no step to be shown")
        self.ids = self._all[replica]
        try:
            self.replays: Ids | None = replay.replay_counts()[replica]
        except ConfigError:
            self.replays = None

    def distribution(self, batch_size: int | None, progress: float | None) -> Floats | None:
        """Return N·P of each stored step, (N,); None if the sampler has no exact sampling probability."""
        if isinstance(self.replay, SamplerReplay) and not self.replay.sampler.has_closed_form:
            return None
        ids = self._for_all(self.ids)
        probabilities = self.replay.probabilities(ids, batch_size=batch_size, progress=progress)
        return self._of_replica(probabilities) * len(self.ids)

    def row_columns(
        self, places: npt.NDArray[np.intp], distribution: Floats | None, agents: Agents | None, screen: Screen
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of `ShownSteps` for the stored steps at these indices, (n, ...)."""
        unknown, ids = np.full(len(places), np.nan), self._for_all(self.ids[places])
        columns = self.replay.get(ids)
        obs = columns["obs"]
        frames = screen.frames(self._of_replica(obs) if isinstance(obs, np.ndarray) else obs)
        if frames is None:
            raise ConfigError(
                "a sheet of what is replayed needs observations that are pictures, uint8 (H, W), (H, W, 3) or stacks "
                "of them, or boards with named channels, as MinAtar's are; these are none"
            )
        ended = self._of_replica(columns["terminated"]) | self._of_replica(columns["truncated"])
        error = unknown
        if isinstance(agents, ProbedAgents) and self.replay.replicas is not None:
            error = self._of_replica(agents.probe(self.replay.as_batch(ids)).td_error).astype(np.float64)
        return {
            "id": self.ids[places],
            "age": self.ids[-1] - self.ids[places],
            "replays": np.full(len(places), -1) if self.replays is None else self.replays[places],
            "likelihood": unknown if distribution is None else distribution[places],
            "td_error": error,
            "reward": self._of_replica(columns["reward"]).astype(np.float64),
            "ended": ended.astype(np.bool_),
            "action": np.array([screen.action(action) for action in self._of_replica(columns["action"])], np.str_),
            "frames": np.ascontiguousarray(frames),
        }

    def _for_all(self, ids: Ids) -> Ids:
        """Return ids in the shape that the replay takes: (R, n), with arbitrary ids of the other replicas."""
        if self.replay.replicas is None:
            return ids
        per_replica = [np.resize(replica_ids, len(ids)) for replica_ids in self._all]
        per_replica[self._replica] = ids
        return np.stack(per_replica)

    def _of_replica(self, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return answer if self.replay.replicas is None else answer[self._replica]
