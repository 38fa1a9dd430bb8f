"""Checked calls of agents, which may be custom, and feedback to the sampler.

Shapes: R replicas, N observations of each, B drawn steps, A actions.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import ArrayOf, InvalidArgument, returned
from replaylab.errors import ConfigError, ShapeError
from replaylab.learners.api.protocols import Agents, Obs, Policy, Probe, Probed, Update
from replaylab.replay import Batch, Replay


def actions_of(policy: Policy, obs: Obs, replicas: int, count: int, *, explore: bool) -> npt.NDArray[Any]:
    """Return a policy's actions (R, N, ...).

    Raises:
        ShapeError, DtypeError: `act` returns something else.
    """
    answer = policy.act(obs, explore=explore)
    if _are_numbers(answer) and answer.shape[:2] == (replicas, count):
        return answer
    rule = ArrayOf((replicas, count), f"actions, numbers of shape ({replicas}, {count}, ...)", leading=True)
    return returned(f"`act` of {type(policy).__name__}", answer, rule)


def updated(agents: Agents, batch: Batch) -> Update:
    """Update the agents with a batch, and return its TD errors (R, B) and other results.

    Raises:
        ConfigError, ShapeError, DtypeError: `update` returns something else.
    """
    update, shape = agents.update(batch), batch.id.shape
    if isinstance(update, Update) and _are_numbers(update.td_error) and update.td_error.shape == shape:
        return update

    def rule(value: Any) -> Update:
        if not isinstance(value, Update):
            raise InvalidArgument("an Update")
        ArrayOf(shape, f"an Update with `td_error`, numbers of shape {shape}")(value.td_error)
        return value

    return returned(f"`update` of {type(agents).__name__}", update, rule)


def probed(agents: Probed, batch: Batch) -> Probe:
    """Return the TD errors and gradients that an update from a batch would have, without learning.

    Raises:
        ConfigError, ShapeError, DtypeError: `probe` returns something else.
    """

    def rule(value: Any) -> Probe:
        shape = batch.id.shape
        words = f"a Probe with `td_error` {shape}, one a row, and `gradient` ({shape[0]}, P)"
        if not isinstance(value, Probe):
            raise InvalidArgument(words)
        ArrayOf(shape, words)(value.td_error)
        if np.ndim(value.gradient) != 2:
            raise InvalidArgument(words, ShapeError, f"`gradient` of shape {np.shape(value.gradient)}")
        ArrayOf(shape[:1], words, leading=True)(value.gradient)
        return value

    return returned(f"`probe` of {type(agents).__name__}", agents.probe(batch), rule)


def discount_of(learner: object, setting: str) -> float:
    """Return the learner's γ, which a setting needs.

    Raises:
        ConfigError: The learner has no γ.
    """
    gamma = getattr(learner, "gamma", None)
    if gamma is None:
        raise ConfigError(f"`{setting}` needs a learner with a `gamma`, but got {learner}; leave it out")
    return float(gamma)


def q_values_of(agents: Any, obs: Obs, shape: tuple[int, int]) -> npt.NDArray[Any]:
    """Return the agents' Q(s, ·), float (R, N, A), for observations of leading shape `shape` (R, N).

    Raises:
        ShapeError, DtypeError: `q_values` returns something else.
    """

    def rule(value: Any) -> npt.NDArray[Any]:
        words = f"the values of all actions, numbers of shape ({shape[0]}, {shape[1]}, A)"
        values = ArrayOf(shape, words, leading=True)(value)
        if values.ndim != 3:
            raise InvalidArgument(words, ShapeError, f"shape {values.shape}")
        return values

    return returned(f"`q_values` of {type(agents).__name__}", agents.q_values(obs), rule)


def feed_back(replay: Replay, ids: npt.NDArray[np.int64], error: npt.NDArray[np.floating[Any]]) -> None:
    """Update the priorities of steps from the errors of an update, (R, B) each.

    A network that has diverged has errors of NaN or infinity. Their steps' priorities stay unchanged, and the other
    replicas continue to learn, as they do with samplers without feedback.
    """
    finite = np.isfinite(error)
    if np.count_nonzero(finite) < finite.size:
        ids, error = np.where(finite, ids, -1), np.where(finite, error, 0.0)
    replay.update_priorities(ids, error)


def _are_numbers(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype.kind in "biuf"
