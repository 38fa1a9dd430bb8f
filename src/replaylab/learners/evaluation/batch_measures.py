"""Measures of the replayed batches, taken during training without changing it.

In the time between two rounds, at up to 16 moments spread evenly over it, the learner's batch is kept, and another of
the same size is drawn uniformly, from a separate stream. A round then compares the two kinds, all by the parameters of
that moment. ``docs/laboratory/measures.md`` defines every number.

Shapes: R replicas, K moments, B rows, D features.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from replaylab import measures
from replaylab.learners.api.answers import probed
from replaylab.learners.api.hooks import EnvStep, Hook, TrainingRun
from replaylab.learners.api.observations import inputs_of
from replaylab.learners.api.protocols import Probed, Update
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.replay import Batch, InspectableReplay
from replaylab.research import Tape

MOMENTS = 16
"""Largest number of moments in one round."""

MOST_FEATURES = 64
"""Observations of more numbers are projected on this many random directions."""

Floats = npt.NDArray[np.float64]
Numbers = dict[str, npt.ArrayLike]
Moment = dict[str, Any]
"""Of one moment, each (R, ...): the columns of the batches "drawn" and "uniform", the "td_error" that was fed back for
the drawn rows (B; NaN: nothing was), their "age" (B), their steps to the end of their episode ("to_end", B; −1: it is
running), and how many steps were stored ("size")."""


class BatchMeasures(Hook):
    """Takes the measures of R replicas.

    Args:
        every: Environment steps between two rounds.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._spacing = -(-every // MOMENTS)
        self._moments = self._rounds = 0
        self._ends: list[list[int]] = []  # ids of the last steps of episodes
        self._recorded: list[Moment] = []
        self._features: _Features | None = None

    def on_begin(self, run: TrainingRun) -> None:
        """Start without episode ends, unless training continues from a checkpoint."""
        self._ends = self._ends or [[] for _ in run.seeds]

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:  # noqa: ARG002
        """Remember the last steps of episodes."""
        if step.ended.any():
            for r in np.flatnonzero(step.ended & (ids >= 0)):
                self._ends[r].append(int(ids[r]))

    def after_learning(self, run: TrainingRun) -> None:
        """Keep the newest batch, and report a round of measures, when each is due."""
        if run.recorder.latest is None:
            return
        self._keep_batch(run, *run.recorder.latest)
        numbers = self._round(run)
        if numbers:
            run.recorder.report(run.clock, numbers)

    def _keep_batch(self, run: TrainingRun, update: Update, batch: Batch) -> None:
        """Keep a batch that was learned from, and draw the one it is compared with, if a moment has come."""
        steps = run.clock.steps
        if steps // self._spacing <= self._moments:
            return
        self._moments = steps // self._spacing
        newest, replay = run.recorder.newest, cast("InspectableReplay", run.replay)
        sizes, rows = np.asarray(replay.size), batch.id.shape[1]
        streams = [generator(seed, Stream.MEASURES, steps) for seed in run.seeds]
        ages = [stream.integers(size, size=rows) for stream, size in zip(streams, sizes, strict=True)]
        self._recorded.append(
            {
                "drawn": dict(batch),
                "uniform": dict(replay.as_batch(newest[:, None] - np.stack(ages))),
                "td_error": update.td_error,
                "age": newest[:, None] - batch.id,
                "to_end": np.stack([_to_end(ids, ends) for ids, ends in zip(batch.id, self._ends, strict=True)]),
                "size": sizes,
            }
        )

    def _round(self, run: TrainingRun) -> Numbers:
        """Return the measures by name, each (R,), if a round is due and there is something to see, else nothing."""
        steps = run.clock.steps
        if steps // self.every <= self._rounds:
            return {}
        self._rounds = steps // self.every
        moments, self._recorded = self._recorded, []
        moments = [moment for moment in moments if moment["age"].shape == moments[-1]["age"].shape]
        if len(moments) < 2:
            return {}
        numbers = _of_distribution(moments) | _of_ends(moments) | _of_use(cast("InspectableReplay", run.replay))
        if isinstance(run.sampler, Tape):
            numbers["moved_share"] = run.replay.stats().moved_share
        if isinstance(run.agents, Probed):
            numbers |= _of_probes(moments, run.agents)
        if moments[0]["age"].shape[1] > 1:
            self._features = self._features or _Features(run.env.single_observation_space)
            numbers |= self._of_pairs(moments) | self._features.numbers(moments)
        return {f"replay/{name}": value for name, value in numbers.items()}

    def state(self) -> dict[str, Any]:
        """Return the complete state as nested arrays."""
        longest = max(map(len, self._ends), default=0)
        ends = np.array([ids + [-1] * (longest - len(ids)) for ids in self._ends], np.int64)
        recorded = {str(k): moment for k, moment in enumerate(self._recorded)}
        counts = {"moments": np.array(self._moments), "looks": np.array(self._rounds)}
        return {"measuring": counts | {"ends": ends, "kept": recorded}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        saved = state["measuring"]
        self._moments, self._rounds = int(saved["moments"]), int(saved["looks"])
        self._ends = [ids[ids >= 0].tolist() for ids in saved["ends"]]
        self._recorded = list(saved.get("kept", {}).values())

    def _of_pairs(self, moments: list[Moment]) -> Numbers:
        ids = _joined(moment["drawn"]["id"] for moment in moments)
        episodes = np.stack([np.searchsorted(ends, drawn) for ends, drawn in zip(self._ends, ids, strict=True)])
        return {
            "same_episode_share": measures.same_episode_share(episodes).mean(1),
            "smallest_gap": measures.smallest_gap(ids).mean(1),
            "duplicate_share": measures.duplicate_share(ids).mean(1),
        }


class _Features:
    """Features of observations: the inputs of a network.

    Args:
        space: Space of one observation. One that is not numeric has no features, and so no measures of them.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._directions: Floats | None = None
        self._inputs = inputs_of(space)
        if self._inputs is not None and self._inputs.size > MOST_FEATURES:
            directions = np.random.default_rng(0).normal(size=(self._inputs.size, MOST_FEATURES))
            self._directions = directions / np.sqrt(MOST_FEATURES)

    def numbers(self, moments: list[Moment]) -> Numbers:
        """Return the measures of the rows' observations."""
        if self._inputs is None:
            return {}
        drawn, uniform = (
            _joined(self._of(moment[which]["obs"]) for moment in moments) for which in ("drawn", "uniform")
        )
        legacy = measures.legacy_correlated_pairs(drawn).mean(1)
        pool = uniform.reshape(len(uniform), 1, -1, uniform.shape[-1])
        drawn, uniform = measures.whitened(drawn, pool), measures.whitened(uniform, pool)
        correlation = measures.mean_absolute_cosine(drawn) - measures.mean_absolute_cosine(uniform)
        return {
            "row_correlation_excess": correlation.mean(1),
            "energy_distance": measures.energy_distance(drawn, uniform).mean(1),
            "legacy_correlated_pairs": legacy,
        }

    def _of(self, obs: Any) -> npt.NDArray[Any]:
        rows = self._inputs(obs)  # type: ignore[misc]  # numbers() has looked
        return rows if self._directions is None else rows @ self._directions


def _joined(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return K arrays (R, ...) as one (R, K, ...)."""
    return np.stack(list(arrays), axis=1)


def _of_distribution(moments: list[Moment]) -> Numbers:
    """Return measures of the sampling distribution from drawn rows: the mean of −ln P is the entropy of P."""
    distribution = _joined(moment["drawn"]["probability"] for moment in moments)
    weight = _joined(moment["drawn"]["weight"] for moment in moments)
    unknown = np.where(np.isnan(distribution), np.nan, 0.0)  # of samplers without a sampling distribution
    surprise = -np.log(distribution, out=unknown, where=distribution > 0).mean(2)
    even = np.log(np.maximum(_joined(moment["size"] for moment in moments), 2))
    known: Numbers = {} if np.isnan(surprise).all() else {"sampling_evenness": (surprise / even).mean(1)}
    return known | {
        "weight_effective_size": measures.effective_sample_size(weight).mean(1),
        "drawn_age_mean": _joined(moment["age"] for moment in moments).mean((1, 2)),
    }


def _to_end(ids: npt.NDArray[np.int64], ends: list[int]) -> npt.NDArray[np.int64]:
    return measures.steps_to_end(ids, ends) if ends else np.full(ids.shape, -1)


def _of_ends(moments: list[Moment]) -> Numbers:
    to_end = _joined(moment["to_end"] for moment in moments)
    finished = (to_end >= 0).sum((1, 2))
    mean = np.divide(np.maximum(to_end, 0).sum((1, 2)), finished, np.full(len(finished), np.nan), where=finished > 0)
    known: Numbers = {"steps_to_end_mean": mean} if finished.any() else {}
    terminated = _joined(moment["drawn"]["terminated"] for moment in moments)
    return known | {"end_share": (to_end == 0).mean((1, 2)), "terminated_share": terminated.mean((1, 2))}


def _of_use(replay: InspectableReplay) -> Numbers:
    counts = replay.replay_counts()
    return {
        "never_replayed_share": np.array([measures.never_replayed_share(of_replica) for of_replica in counts]),
        "replay_gini": np.array([measures.gini(of_replica) for of_replica in counts]),
    }


def _of_probes(moments: list[Moment], agents: Probed) -> Numbers:
    """Return measures under the current parameters: TD errors, and the variance of the batches' mean gradients."""
    errors: dict[str, list[npt.NDArray[Any]]] = {"drawn": [], "uniform": []}

    def gradients(which: str) -> Iterable[npt.NDArray[Any]]:
        for moment in moments:
            probe = probed(agents, Batch(moment[which]))
            errors[which].append(probe.td_error)
            yield probe.gradient

    weight = np.mean([moment["drawn"]["weight"].mean(1) for moment in moments], axis=0)
    drawn, uniform = (measures.total_variance(gradients(which)) for which in ("drawn", "uniform"))
    drawn = drawn / weight**2
    fresh, every = (_joined(errors[which]).reshape(len(drawn), -1) for which in ("drawn", "uniform"))
    td_errors = measures.td_errors(fresh, _joined(moment["td_error"] for moment in moments).reshape(fresh.shape), every)
    statistics = vars(td_errors)
    if np.isnan(td_errors.gap).all():  # nothing was fed back
        statistics = {name: value for name, value in statistics.items() if name != "gap"}
    known = np.divide(uniform, drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0)
    return {
        "gradient_variance": drawn,
        "gradient_variance_uniform": uniform,
        "effective_batch_size": moments[0]["age"].shape[1] * known,
        **{f"td_error_{name}": value for name, value in statistics.items()},
        "autocorrelation_time": measures.integrated_autocorrelation(fresh),
    }
