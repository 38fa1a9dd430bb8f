"""R deep Q-learners that act and learn together.

Shapes: R replicas, B drawn steps, A actions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from replaylab.learners.adam import Adam
from replaylab.learners.agents import State, Step, Update
from replaylab.learners.dqn import DQN
from replaylab.learners.network import MultiLayerPerceptron
from replaylab.learners.streams import Stream, generator
from replaylab.replay import Batch


class Population:
    """R networks, their target networks and their optimiser, each replica as if it were alone.

    Args:
        learner: The settings.
        inputs: Numbers in one observation, after flattening.
        num_actions: A.
        seeds: One for each replica, of which its `Stream.INITIAL_WEIGHTS` is used.
    """

    def __init__(self, learner: DQN, inputs: int, num_actions: int, seeds: Sequence[int]) -> None:
        sizes = (inputs, *learner.hidden, num_actions)
        self.learner = learner
        self.online = MultiLayerPerceptron(sizes, len(seeds))
        self.target = MultiLayerPerceptron(sizes, len(seeds))
        self.online.initialise([generator(seed, Stream.INITIAL_WEIGHTS) for seed in seeds])
        self.target.copy_from(self.online)
        self.optimiser = Adam(self.online.parameters, learner.learning_rate)
        self.epsilon: float | npt.NDArray[Any] = 0.0
        self.updates = 0

    @torch.inference_mode()
    def q_values(self, obs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return Q(s, ·) (R, N, A) for N observations of each replica, (R, N, ...)."""
        return np.ascontiguousarray(self.online.forward(_inputs(obs)).numpy())

    @torch.inference_mode()
    def update(self, batch: Batch) -> Update:
        """Do one step of deep Q-learning in every replica, on its own batch.

        Args:
            batch: Columns (R, B, ...): obs, action, reward, next_obs, terminated, weight.
        """
        learner, rows = self.learner, batch.action.shape[1]
        obs, next_obs = _inputs(batch.obs), _inputs(batch.next_obs)
        action = torch.from_numpy(batch.action).unsqueeze(-1)
        discount = torch.from_numpy(np.float32(learner.gamma) * ~batch.terminated)

        q_next = self.target.forward(next_obs)
        next_action = _argmax(self.online.forward(next_obs) if learner.double else q_next)
        target = torch.from_numpy(batch.reward) + discount * _at(q_next, next_action)

        all_q = self.online.forward(obs)
        q = _at(all_q, action)
        td_error = target - q
        slope = td_error.clamp(-1.0, 1.0) if learner.loss == "huber" else td_error
        grad_q = torch.from_numpy(batch.weight) * slope * (-1.0 / rows)
        self.online.backward(torch.zeros_like(all_q).scatter_(-1, action, grad_q.unsqueeze(-1)))
        if learner.max_grad_norm is not None:
            self.online.clip_gradients(learner.max_grad_norm)
        self.optimiser.step(self.online.gradients)

        self.updates += 1
        if self.updates % learner.target_period == 0:
            self.target.copy_from(self.online)
        return Update(td_error.numpy(), slope.numpy(), q.numpy(), batch.weight)

    def observe(self, step: Step) -> None:
        """Do nothing: a deep learner learns from batches."""

    def state(self) -> State:
        """Return the parameters of both networks, the optimiser's averages and the counts, copied."""
        state = {
            f"{name}.{block}": part.numpy().copy()
            for name, flat in self._flat().items()
            for block, part in enumerate(self.online.blocks(flat))
        }
        return state | {"updates": np.array(self.updates), "optimiser.steps": np.array(self.optimiser.steps)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        for name, flat in self._flat().items():
            for block, part in enumerate(self.online.blocks(flat)):
                part.copy_(torch.from_numpy(state[f"{name}.{block}"]))
        self.updates, self.optimiser.steps = int(state["updates"]), int(state["optimiser.steps"])

    def _flat(self) -> dict[str, Tensor]:
        averages = {"optimiser.mean": self.optimiser.mean, "optimiser.square": self.optimiser.square}
        return {"online": self.online.parameters, "target": self.target.parameters, **averages}


def _inputs(obs: npt.NDArray[Any]) -> Tensor:
    """Return observations (R, N, ...) as the network's inputs, float32 (R, N, I)."""
    flat = obs.reshape(*obs.shape[:2], -1)
    return torch.from_numpy(np.ascontiguousarray(flat, dtype=np.float32))


def _at(q: Tensor, action: Tensor) -> Tensor:
    """Return Q(s, a) (R, B) for Q(s, ·) (R, B, A) and actions (R, B, 1)."""
    return q.gather(-1, action).squeeze(-1)


def _argmax(q: Tensor) -> Tensor:
    """Return the best actions int64 (R, B, 1)."""
    return q.contiguous().argmax(-1, keepdim=True)  # over a strided axis PyTorch is ten times slower
