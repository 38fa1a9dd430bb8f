"""What an update of an algorithm would see and do, without doing it: its own `train`, on a copy, stopped half-way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from replaylab.integrations.sb3 import WithPriorities
from replaylab.learners.api.protocols import Probe, each
from replaylab.learners.api.random_streams import global_streams_kept
from replaylab.learners.sb3 import algorithms
from replaylab.learners.sb3.handed import hand_buffer
from replaylab.replay import Batch


class DryUpdates:
    """Evaluates batches by the networks of a model, whatever its algorithm is, and leaves the model alone.

    A second model takes the first one's parameters and is given the batch to train on. Where it is about to change its
    critics, it is stopped: the TD errors have been seen, and the gradient is there.

    Args:
        again: The second model, `WithPriorities`, made as the first one; its buffer is a `HandedBuffer`.
    """

    def __init__(self, again: OffPolicyAlgorithm) -> None:
        again.set_logger(Logger(folder=None, output_formats=[]))
        if getattr(again, "max_grad_norm", None) is not None:
            again.max_grad_norm = float("inf")  # type: ignore[attr-defined]  # gradients as they are
        self._again, self._buffer = again, hand_buffer(again)
        self._buffer.always = True
        self._optimizer = _critics(again)
        self._optimizer.register_step_pre_hook(self._stop)

    @staticmethod
    def known_of(model: OffPolicyAlgorithm) -> bool:
        """Return whether a model's `train` is one of the library's own, of which all that matters is known."""
        own = next(one for one in type(model).__mro__ if "train" in vars(one) and one is not WithPriorities)
        return own.__name__ in algorithms.NAMED and own is algorithms.find(own.__name__)

    def probe(self, model: OffPolicyAlgorithm, batch: Batch) -> Probe:
        """Return what an update of a model from a batch (1, B, ...) would see and do to its critics.

        |δ| of a row is the mean over critics, as it is fed back; its sign is that of their mean.
        """
        rows = Batch({name: each(lambda part: part[0], column) for name, column in batch.items()})
        self._buffer.hand.batch = rows
        with global_streams_kept():
            self._follow(model)
            try:
                self._again.train(gradient_steps=1, batch_size=len(rows.id))
            except _StopHereError as stopped:
                return Probe(stopped.td_error[None], stopped.gradient[None])
        raise AssertionError(f"{type(model).__name__} trained without a step of its critics")  # none does

    def _follow(self, model: OffPolicyAlgorithm) -> None:
        """Take a model's parameters."""
        names, tensors = model._get_torch_save_params()
        for name in names:
            if not name.endswith("optimizer"):
                recursive_getattr(self._again, name).load_state_dict(recursive_getattr(model, name).state_dict())
        for name in tensors:
            recursive_getattr(self._again, name).data.copy_(recursive_getattr(model, name).data)

    def _stop(self, *_: Any) -> None:
        """Stop the update, where the critics' optimiser is about to make its step."""
        draw = self._buffer.awaited
        parameters = [one for group in self._optimizer.param_groups for one in group["params"]]
        parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        gradient = torch.cat([part.reshape(-1) for part in parts]).numpy(force=True)
        errors = None if draw is None else draw.signed_errors()
        assert errors is not None, "the library's losses are differences"
        raise _StopHereError(errors, gradient)


class _StopHereError(Exception):
    """How an update is stopped, with what was seen of it: δ (B,), and the gradient (P,)."""

    def __init__(self, td_error: npt.NDArray[Any], gradient: npt.NDArray[np.float32]) -> None:
        super().__init__()
        self.td_error, self.gradient = td_error, gradient


def _critics(model: OffPolicyAlgorithm) -> torch.optim.Optimizer:
    """Return what moves the critics: of deep Q-learning, the policy's optimiser."""
    critic = getattr(model, "critic", None)
    optimizer: torch.optim.Optimizer = (model.policy if critic is None else critic).optimizer
    return optimizer
