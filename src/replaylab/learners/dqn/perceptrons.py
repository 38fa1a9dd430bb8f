"""Deep Q-learners whose networks are perceptrons, with or without convolutions below, computed by the compiled core.

The core goes through a whole update replica by replica (forward, backward, optimizer), so that a replica's numbers stay
in the processor's nearest cache: at CartPole's size five times faster than PyTorch's products batched over replicas.
Convolutions copy nothing side by side and keep each place's numbers in the nearest cache. The tests hold it all
against PyTorch's autograd.

Shapes: R replicas, N observations, B drawn steps, A actions, P parameters of a replica.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from replaylab._core import QLearners
from replaylab.learners.api.exploration import EpsilonGreedyAgents, at
from replaylab.learners.api.observations import Inputs, pixels_in_rows
from replaylab.learners.api.protocols import Obs, Probe, State, ValueUpdate
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.learners.dqn.layers import ImageLayers, initial_blocks
from replaylab.learners.dqn.settings import DQNSettings
from replaylab.replay import Batch, as_schedule

_ARRAYS = ("online", "target", "mean", "square")

_STILL = {"target_period": 2**62, "max_grad_norm": inf}
"""Optimizer settings with learning rate 0, so that an update changes no network."""


class PerceptronAgents(EpsilonGreedyAgents):
    """R deep Q-learners with perceptrons; see `Agents` for the methods.

    Args:
        learner: The settings.
        space: Space of the observations.
        layers: Convolutions and hidden layers, of networks that see images; None: they see numbers in a row.
        actions: The action space.
        seeds: One for each replica, of which its `Stream.INITIAL_WEIGHTS` and `Stream.EXPLORATION` are used.
    """

    def __init__(
        self,
        learner: DQNSettings,
        space: Space[Any],
        layers: ImageLayers | None,
        actions: spaces.Discrete,
        seeds: Sequence[int],
    ) -> None:
        least, most = learner.target_range or (-inf, inf)
        inputs = Inputs(space)
        pixels = layers is not None and layers.pixels
        self._inputs: Callable[[Obs], npt.NDArray[Any]] = pixels_in_rows if pixels else inputs
        self._gamma, self.loss = learner.gamma, learner.loss
        super().__init__(learner.epsilon, actions, seeds)
        settings: dict[str, Any] = {
            "shape": (inputs.size, 1, 1) if layers is None else space.shape,
            "convolutions": () if layers is None else layers.convolutions,
            "hidden": learner.hidden if layers is None else layers.hidden,
            "actions": int(actions.n),
            "replicas": len(seeds),
            "dueling": learner.dueling,
            "is_double": learner.double,
            "huber": learner.loss == "huber",
            "max_grad_norm": learner.max_grad_norm or inf,
            "least": least,
            "most": most,
            "optimizer": learner.optimizer.in_core(),
            "tau": learner.tau,
            "target_period": learner.target_period,
        }
        self.core = QLearners(**settings)
        self._settings = settings
        shapes = [(outputs, inputs) for _, outputs, inputs in self.core.layers]
        for r, seed in enumerate(seeds):
            blocks = initial_blocks(shapes, generator(seed, Stream.INITIAL_WEIGHTS))
            self.core.online[r] = np.concatenate([block.ravel() for block in blocks])
        self.core.target[:] = self.core.online
        self._learning_rate, self._rates = as_schedule(learner.learning_rate), self.core.learning_rates
        self.set_progress(0.0)

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set ε and the learning rates."""
        super().set_progress(progress)
        self._rates[:] = at(self._learning_rate, progress)

    def q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q(s, ·) (R, N, A) for observations (R, N, ...)."""
        return self.core.q_values(self._inputs(obs))

    def target_q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q⁻(s, ·) (R, N, A), the target networks' values."""
        still = self._still
        still.online[:] = self.core.target
        return still.q_values(self._inputs(obs))

    def update(self, batch: Batch) -> ValueUpdate:
        """Update every replica once, with its part of the batch (R, B, ...)."""
        td_error, slope, q = self._updated(self.core, batch)
        self.updates = self.core.updates
        return ValueUpdate(td_error, slope, q, batch.weight)

    def probe(self, batch: Batch) -> Probe:
        """Return the results that `update` would have, by the same code on a copy of the networks."""
        still = self._still
        still.online[:], still.target[:] = self.core.online, self.core.target
        td_error, _, _ = self._updated(still, batch)
        return Probe(td_error, still.gradients.copy())

    def copy_target(self, where: npt.NDArray[np.bool_]) -> None:
        """Copy the online network to the target network in some replicas, bool (R,)."""
        self.core.target[where] = self.core.online[where]

    def weights(self) -> State:
        """Return the online networks' parameters, copied."""
        return {"online": self.core.online.copy()}

    def take_weights(self, weights: State) -> None:
        """Use the parameters of online networks that `weights` of other agents returned."""
        self.core.online[:] = weights["online"]

    def state(self) -> State:
        """Return the networks' parameters, the optimizer's averages and the count of updates, copied."""
        networks = {name: getattr(self.core, name).copy() for name in _ARRAYS}
        return networks | self.exploration_state() | {"updates": np.array(self.updates)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        for name in _ARRAYS:
            getattr(self.core, name)[:] = state[name]
        self.updates = self.core.updates = int(state["updates"])
        self.restore_exploration(state)

    @cached_property
    def _still(self) -> QLearners:
        """Networks of the same kind, for other parameters."""
        return QLearners(**self._settings | _STILL)

    def _updated(self, core: QLearners, batch: Batch) -> tuple[npt.NDArray[np.float32], ...]:
        """Update a core's networks, and return δ, ℓ'(δ) and Q(s, a), each (R, B)."""
        obs, next_obs = (np.ascontiguousarray(self._inputs(part)) for part in (batch.obs, batch.next_obs))
        action = np.ascontiguousarray(self.index_of(batch.action), np.int64)
        # If one column did not fit, the core would read all of them differently, for example pixels without scaling.
        numbers = (batch.reward, bootstrap_discount(batch, self._gamma), batch.weight)
        reward, discount, weight = (np.ascontiguousarray(column, np.float32) for column in numbers)
        return core.update(obs, action, reward, next_obs, discount, weight)


def bootstrap_discount(batch: Batch, gamma: float) -> npt.NDArray[np.float32]:
    """Return the discount of each drawn step's bootstrap, float32 (R, B).

    An n-step batch contains it (γᵏ, or 0 after termination); otherwise it is γ·(1 − terminated).
    """
    if "discount" in batch:
        return np.asarray(batch.discount, np.float32)
    return np.asarray(np.float32(gamma) * np.logical_not(batch.terminated), np.float32)
