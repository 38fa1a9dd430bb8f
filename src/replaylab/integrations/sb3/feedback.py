"""Weights into an algorithm's loss, and TD errors out of it, by way of the rewards that it is given.

Every off-policy algorithm makes its targets of the batch's rewards, and its loss of the differences between targets and
what its networks say. So the rewards of a batch are tensors that watch what is made of them: where such a target meets
values that gradients flow through, in a difference or in a loss that is one, the differences are the TD errors, and
each row's gradient is multiplied by the row's weight. This is the gradient of the weighted loss, for any loss that is a
mean over rows. The networks never see these tensors, so it does not matter what they are, or whether they are compiled.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from replaylab.errors import ConfigError

LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
"""Losses of `torch.nn.functional` that are functions of a difference."""

SEEN = LOSSES | {"sub", "__sub__", "rsub", "__rsub__", "subtract"}
"""Functions of targets and values in which TD errors can be seen."""

NAMED = ("input", "target", "other")
"""What these functions call their first two arguments."""

COMPILED = (
    "the algorithm's loss is compiled (torch.compile), where no TD error can be seen; compile the networks instead "
    "(`model.critic.compile()`), of which WithPriorities takes no notice"
)


class Draw:
    """A batch that was handed out, with what came back for it.

    Attributes:
        ids: int64 (B,).
        weight: float32 (B, 1), on the device of the batch.
    """

    def __init__(self, ids: npt.NDArray[np.int64], weight: torch.Tensor) -> None:
        self.ids, self.weight = ids, weight
        self._errors: list[npt.NDArray[Any]] = []

    def watch(self, values: torch.Tensor) -> "Watched":
        """Return the same values as a tensor that this draw watches."""
        watched = values.as_subclass(Watched)
        watched.draw = self
        return watched

    def errors(self) -> npt.NDArray[Any] | None:
        """Return |δ| of every row, the mean over critics (B,); None where no difference was seen."""
        found = self._errors
        if len(found) < 2:
            return found[0] if found else None
        return sum(found[1:], found[0]) / len(found)

    def met(self, first: torch.Tensor, second: torch.Tensor, by: str) -> None:
        """Take note of the difference between targets and values, each (B, ...).

        Raises:
            ConfigError: Their first axis is not that of rows.
        """
        rows, one, other = len(self.ids), _array(first), _array(second)
        if not 0 < one.ndim == other.ndim or not len(one) == len(other) == rows:
            raise ConfigError(
                f"the loss ({by}) must have the {rows} rows of the batch as its first axis, to be weighted row by "
                f"row, but has shapes {one.shape} and {other.shape}; compute it critic by critic"
            )
        if one.ndim >= 3:  # all pairs of quantiles: their mean is the difference of the means
            one, other = one.mean((-2, -1)), other.mean((-2, -1))
        errors = np.abs(one - other).reshape(rows, -1)
        self._errors.append(errors.mean(1) if errors.shape[1] > 1 else errors[:, 0])

    def weighted(self, values: torch.Tensor) -> torch.Tensor:
        """Return the same values, whose gradients are multiplied by the weights, row by row."""
        if not values.requires_grad:
            return values
        weight = self.weight
        if values.ndim != 2 or values.dtype is not torch.float32:
            weight = weight.reshape(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        # v + w (v - v), exactly v, has the gradient w, and needs no hook in Python on the way back
        return torch.lerp(values.detach(), values, weight)


class Watched(torch.Tensor):
    """Rewards, and what is made of them."""

    draw: Draw

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            raise ConfigError(COMPILED)
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            draw, learned = _seen(args, kwargs)
            if learned:
                return _meet(draw, func, args, kwargs)
            made = func(*args, **kwargs)
            return draw.watch(made) if type(made) is torch.Tensor and made.is_floating_point() else made


def _seen(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Draw, bool]:
    """Return who watches the tensors in nested arguments, and whether gradients flow through one."""
    graph, draw, learned = torch.is_grad_enabled(), None, False
    left = [*args, *kwargs.values()]
    for value in left:  # which grows
        if isinstance(value, torch.Tensor):
            if type(value) is Watched:
                draw = value.draw
            learned = learned or (graph and value.requires_grad)
        elif isinstance(value, tuple | list):
            left.extend(value)
        elif isinstance(value, dict):
            left.extend(value.values())
    return cast("Draw", draw), learned


def _meet(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function makes of a target and of values that are learned, weighted, and note their difference."""
    name = getattr(func, "__name__", repr(func))
    if name not in SEEN:
        raise ConfigError(
            f"the algorithm's loss is made of its targets by `{name}`, where no TD error can be seen; WithPriorities "
            f"takes losses of a difference: `target - value`, or {', '.join(sorted(LOSSES))} of torch.nn.functional"
        )
    if len(args) < 2:
        args = (*args, *(kwargs[name] for name in NAMED if name in kwargs))
        kwargs = {name: value for name, value in kwargs.items() if name not in NAMED}
    first, second, *others = args
    draw.met(first, second, name)
    return func(draw.weighted(first), draw.weighted(second), *others, **kwargs)


def _array(values: torch.Tensor) -> npt.NDArray[Any]:
    return (values if values.dtype is torch.float32 else values.float()).numpy(force=True)
