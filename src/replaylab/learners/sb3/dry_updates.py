"""TD errors and gradients of an update without doing it: the algorithm's `train` on a copy, stopped midway."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from replaylab.learners.api.protocols import Probe
from replaylab.learners.api.random_streams import Stream, global_streams_kept, numbers
from replaylab.learners.sb3.handed import hand_buffer
from replaylab.replay import Batch
from replaylab.trees import take

_KNOWN = {"stable_baselines3", "sb3_contrib", "replaylab", "abc", "builtins"}
"""Packages whose classes have no further state that an update depends on."""


class DryUpdates:
    """Evaluates batches by the networks of a model of any algorithm, without changing the model.

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
        critic = getattr(again, "critic", None)  # deep Q-learning has none
        self._optimizer: torch.optim.Optimizer = (again.policy if critic is None else critic).optimizer
        self._optimizer.register_step_pre_hook(self._stop)
        self._probes = 0

    @staticmethod
    def known_of(model: OffPolicyAlgorithm) -> bool:
        """Return whether all state that a model's update depends on is known: its class is the library's own."""
        return all(base.__module__.partition(".")[0] in _KNOWN for base in type(model).__mro__)

    def probe(self, model: OffPolicyAlgorithm, batch: Batch) -> Probe:
        """Return TD errors and critic gradients that an update from a batch (1, B, ...) would have.

        What an update draws, such as next actions, is drawn again for each. |δ| of a row is the mean over critics, as
        it is fed back; its sign is that of their mean.
        """
        self._buffer.hand.batch = Batch(take(batch, 0))
        self._probes += 1
        with global_streams_kept():
            torch.manual_seed(numbers(model.seed or 0, Stream.MEASURES, 1, 0, self._probes)[0])
            self._follow(model)
            try:
                self._again.train(gradient_steps=1, batch_size=batch.id.shape[1])
            except _StopHereError as stopped:
                return Probe(stopped.td_error[None], stopped.gradient[None])
        raise AssertionError(f"{type(model).__name__} trained without a step of its critics")  # none does

    def _follow(self, model: OffPolicyAlgorithm) -> None:
        """Copy a model's parameters."""
        names, tensors = model._get_torch_save_params()
        for name in names:
            if not name.endswith("optimizer"):
                recursive_getattr(self._again, name).load_state_dict(recursive_getattr(model, name).state_dict())
        for name in tensors:
            recursive_getattr(self._again, name).data.copy_(recursive_getattr(model, name).data)

    def _stop(self, *_: Any) -> None:
        """Stop the update, where the critics' optimiser is about to make its step."""
        draw = self._buffer.awaited
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        parts = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters]
        gradient = torch.cat([part.reshape(-1) for part in parts]).numpy(force=True)
        errors = None if draw is None else draw.signed_errors()
        assert errors is not None, "the library's losses are differences"
        raise _StopHereError(errors, gradient)


class _StopHereError(Exception):
    """Raised to stop an update, with its δ (B,) and gradient (P,)."""

    def __init__(self, td_error: npt.NDArray[Any], gradient: npt.NDArray[np.float32]) -> None:
        super().__init__()
        self.td_error, self.gradient = td_error, gradient
