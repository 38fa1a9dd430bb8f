"""Weights into an algorithm's loss, and TD errors out of it, by way of the rewards that it is given.

Every off-policy algorithm makes its targets of the batch's rewards, and its loss of the differences between targets and
what its networks say. So the rewards of a batch are tensors that watch what is made of them: where such a target meets
values that gradients flow through, in a difference or in a loss that is one, the differences are the TD errors, and
each row's gradient is multiplied by the row's weight. This is the gradient of the weighted loss, for any loss that is a
mean over rows. The networks never see these tensors, so it does not matter what they are, or whether they are compiled.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.compiler import is_compiling

from replaylab.errors import ConfigError

LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
"""Losses of `torch.nn.functional` that are functions of a difference."""

SEEN = LOSSES | {"sub", "__sub__", "rsub", "__rsub__", "subtract"}
"""Functions of targets and values in which TD errors can be seen."""

NAMED = ("input", "target", "other")
"""What these functions call their first two arguments."""

NESTED = (tuple, list, dict)
"""In what else tensors are handed to a function."""

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
        self._apart: list[torch.Tensor] = []

    def watch(self, values: torch.Tensor) -> "Watched":
        """Make a tensor that nobody else has yet one that this draw watches."""
        values.__class__ = Watched  # a view of it would be one more operation
        values.draw = self  # type: ignore[attr-defined]
        return values  # type: ignore[return-value]

    def errors(self) -> npt.NDArray[Any] | None:
        """Return |δ| of every row, the mean over critics (B,); None where no difference was seen."""
        found = [_array(apart).reshape(len(self.ids), -1) for apart in self._apart]
        if len(found) == 1 and found[0].shape[1] == 1:
            return cast("npt.NDArray[Any]", np.abs(found[0][:, 0]))
        return np.mean([np.abs(one).mean(1) for one in found], axis=0, dtype=found[0].dtype) if found else None

    def signed_errors(self) -> npt.NDArray[Any] | None:
        """Return δ = target − value of every row (B,): |δ| is that of `errors`, its sign that of the mean δ."""
        sizes = self.errors()
        if sizes is None:
            return None
        means = [_array(apart).reshape(len(self.ids), -1).mean(1) for apart in self._apart]
        signed: npt.NDArray[Any] = np.copysign(sizes, np.mean(means, axis=0))
        return signed

    def met(self, target: torch.Tensor, value: torch.Tensor, by: str) -> None:
        """Take note of the difference between targets and values, each (B, ...), through which no gradients flow.

        Raises:
            ConfigError: Their first axis is not that of rows.
        """
        one, other = target.shape, value.shape
        if not 0 < len(one) == len(other) or not one[0] == other[0] == len(self.ids):
            raise ConfigError(
                f"the loss ({by}) must have the {len(self.ids)} rows of the batch as its first axis, to be weighted "
                f"row by row, but has shapes {tuple(one)} and {tuple(other)}; compute it critic by critic"
            )
        if len(one) >= 3:  # all pairs of quantiles: their mean is the difference of the means
            target, value = target.mean((-2, -1)), value.mean((-2, -1))
        self._apart.append(target - value)

    def weighted(self, values: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
        """Return the same values, whose gradients are multiplied by the weights, row by row.

        Args:
            values: (B, ...).
            fixed: The same, through which no gradients flow; `values` itself where none flow anyway.
        """
        if fixed is values:
            return values
        weight = self.weight
        if values.ndim != 2 or values.dtype is not torch.float32:
            weight = weight.reshape(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        # v + w (v - v), exactly v, has the gradient w, and needs no hook in Python on the way back
        return torch.lerp(fixed, values, weight)


class Watched(torch.Tensor):
    """Rewards, and what is made of them."""

    draw: Draw

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_compiling():
            raise ConfigError(COMPILED)
        with torch._C.DisableTorchFunctionSubclass():
            draw, learned = _seen(args)
            if kwargs and not (learned and draw):
                draw, learned = _seen(kwargs.values(), draw, learned)
            if learned and torch.is_grad_enabled():
                return _meet(cast("Draw", draw), func, args, kwargs or {})
            made = func(*args, **kwargs) if kwargs else func(*args)
            if type(made) is not torch.Tensor or not made.is_floating_point():
                return made
            for given in args:
                if made is given:
                    made = made.detach()
            return cast("Draw", draw).watch(made)


def _seen(values: Iterable[Any], draw: Draw | None = None, learned: bool = False) -> tuple[Draw | None, bool]:
    """Return who watches the tensors among nested values, and whether gradients may flow through one."""
    for value in values:
        if type(value) is Watched:
            draw = value.draw
        elif isinstance(value, torch.Tensor):
            learned = learned or value.requires_grad
        elif isinstance(value, NESTED):
            draw, learned = _seen(value.values() if isinstance(value, dict) else value, draw, learned)
    return draw, learned


def _meet(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function makes of a target and of values that are learned, weighted, and note their difference."""
    name = getattr(func, "__name__", None) or repr(func)
    if name not in SEEN:
        raise ConfigError(
            f"the algorithm's loss is made of its targets by `{name}`, where no TD error can be seen; WithPriorities "
            f"takes losses of a difference: `target - value`, or {', '.join(sorted(LOSSES))} of torch.nn.functional"
        )
    if len(args) < 2:
        args = (*args, *(kwargs[name] for name in NAMED if name in kwargs))
        kwargs = {name: value for name, value in kwargs.items() if name not in NAMED}
    first, second, *others = args
    one = first.detach() if first.requires_grad else first
    other = second.detach() if second.requires_grad else second
    draw.met(*((other, one) if first.requires_grad else (one, other)), name)
    return func(draw.weighted(first, one), draw.weighted(second, other), *others, **kwargs)


def _array(values: torch.Tensor) -> npt.NDArray[Any]:
    if values.dtype is not torch.float32:
        values = values.float()
    array: npt.NDArray[Any] = values.numpy() if values.is_cpu else values.numpy(force=True)
    return array
