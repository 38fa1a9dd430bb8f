"""Updates of deep Q-learning from a replay on the same device: draw, learn, and feed back, without the host."""

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from replaylab.learners.api.observations import are_pixels
from replaylab.learners.api.protocols import ValueUpdate
from replaylab.learners.dqn.captured import Captured
from replaylab.learners.dqn.modules import ModuleAgents, Rows
from replaylab.learners.dqn.settings import DQNSettings
from replaylab.replay import Batch
from replaylab.torch import DeviceReplay


class DeviceUpdates:
    """Updates one agent from a replay on its device; on a GPU each update with its draw is one CUDA graph.

    A custom module, which may have random numbers, is not captured.

    Args:
        settings: The learner.
        agents: Of one replica; they are updated.
        replay: On the agents' device.
        space: Of the observations, a Box.
        feeds_back: Whether TD errors are fed back to the replay.
    """

    def __init__(
        self,
        settings: DQNSettings,
        agents: ModuleAgents,
        replay: DeviceReplay,
        space: Space[Any],
        feeds_back: bool,
    ) -> None:
        self._settings, self._agents, self._replay, self._feeds_back = settings, agents, replay, feeds_back
        self._in_shape = settings.module is not None or settings.filters > 0 or are_pixels(space)
        captures = agents.device if settings.module is None else torch.device("cpu")
        self._update = Captured(self._draw_and_learn, captures)
        self._newest: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self) -> None:
        """Do one update; `DeviceReplay.set_progress` was called before."""
        self._agents.updates += 1
        self._newest = self._update()
        self._agents.learners[0].move_target(self._agents.updates)

    def newest(self) -> tuple[ValueUpdate, Batch] | None:
        """Return the newest update, and of its batch (1, B) ids and weights; waits for the device."""
        if self._newest is None:
            return None
        ids, weight, result = (part.numpy(force=True) for part in self._newest)
        td_error, slope, q = result[:, None]
        columns = {"id": ids[None], "weight": weight[None]}
        return ValueUpdate(td_error, slope, q, columns["weight"]), Batch(columns)

    def rows(self, batch: Batch) -> Rows:
        """Return a drawn batch as rows to learn from."""
        discount = batch.discount if "discount" in batch else self._settings.gamma * (~batch.terminated).float()
        obs, next_obs = self._inputs(batch.obs), self._inputs(batch.next_obs)
        action = batch.action - self._agents.first_action
        return Rows(obs, action, batch.reward, next_obs, discount, batch.weight)

    def _draw_and_learn(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and weights (B,), and what `ModuleLearner.learn` returns."""
        batch = self._replay.sample(self._settings.batch_size)
        result = self._agents.learners[0].learn(self._agents.updates, self.rows(batch))
        if self._feeds_back:
            self._replay.update_priorities(batch.id, result[0])
        return batch.id, batch.weight, result

    def _inputs(self, obs: Tensor) -> Tensor:
        """Return observations of a Box as the network takes them."""
        x = obs if self._in_shape else obs.flatten(1).float()
        return x.float() if x.is_floating_point() else x
