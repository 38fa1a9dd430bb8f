"""Importance weights in an algorithm's loss, and its TD errors, both by way of the batch's rewards.

Every off-policy algorithm computes its targets from the batch's rewards, and its loss from the differences between the
targets and its networks' outputs. So the rewards of a batch are tensors that track the tensors computed from them.
Where such a target meets values with gradients, in a difference or in a loss that depends on one, the differences are
the TD errors, and each row's gradient is multiplied by the row's weight. This is the gradient of the weighted loss, for
any loss that is a mean over rows. The networks never receive these tensors, so they may be of any kind, compiled or
not.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.compiler import is_compiling

from replaylab.errors import ConfigError
from replaylab.replay import Batch

LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
"""Losses of `torch.nn.functional` that are functions of a difference."""

SEEN = LOSSES | {"sub", "__sub__", "rsub", "__rsub__", "subtract"}
"""Functions of targets and values in which TD errors can be seen."""

NAMED = ("input", "target", "other")
"""Names of these functions' first two arguments."""

NESTED = (tuple, list, dict)
"""Containers in which tensors are passed to a function."""

COMPILED = (
    "the algorithm's loss is compiled (torch.compile), where no TD error can be seen; compile only the networks "
    "(`model.critic.compile()`)"
)


class Draw:
    """A batch that was drawn, with the TD errors recorded for it.

    Args:
        batch: The batch.
        device: Device of its rewards.

    Attributes:
        ids: int64 (B,).
        weight: float32 (B, 1), on the device.
    """

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self.ids: npt.NDArray[np.int64] = batch.id
        self.weight = torch.from_numpy(batch.weight.reshape(-1, 1)).to(device)
        self._differences: list[torch.Tensor] = []

    def watch(self, values: torch.Tensor) -> "Watched":
        """Turn a new tensor into one whose results this draw watches, in place."""
        values.__class__ = Watched  # a view of it would be one more operation
        values.draw = self  # type: ignore[attr-defined]
        return values  # type: ignore[return-value]

    def errors(self) -> npt.NDArray[Any] | None:
        """Return |δ| of every row, the mean over critics (B,); None where no difference was seen."""
        differences = [_array(values).reshape(len(self.ids), -1) for values in self._differences]
        if len(differences) == 1 and differences[0].shape[1] == 1:
            return cast("npt.NDArray[Any]", np.abs(differences[0][:, 0]))
        if not differences:
            return None
        sizes = [np.abs(values).mean(1) for values in differences]
        mean: npt.NDArray[Any] = np.mean(sizes, axis=0, dtype=differences[0].dtype)
        return mean

    def signed_errors(self) -> npt.NDArray[Any] | None:
        """Return δ = target − value of every row (B,): |δ| is that of `errors`, its sign that of the mean δ."""
        sizes = self.errors()
        if sizes is None:
            return None
        means = [_array(values).reshape(len(self.ids), -1).mean(1) for values in self._differences]
        signed: npt.NDArray[Any] = np.copysign(sizes, np.mean(means, axis=0))
        return signed

    def met(self, target: torch.Tensor, value: torch.Tensor, by: str) -> None:
        """Record the difference between targets and values, each (B, ...), without gradients.

        Raises:
            ConfigError: The first axis is not that of the batch's rows.
        """
        target_shape, value_shape = target.shape, value.shape
        if not 0 < len(target_shape) == len(value_shape) or not target_shape[0] == value_shape[0] == len(self.ids):
            raise ConfigError(
                f"the loss ({by}) must have the {len(self.ids)} rows of the batch as its first axis, to be weighted "
                f"row by row, but has shapes {tuple(target_shape)} and {tuple(value_shape)}; compute it critic by "
                "critic"
            )
        if len(target_shape) >= 3:  # all pairs of quantiles: their mean is the difference of the means
            target, value = target.mean((-2, -1)), value.mean((-2, -1))
        self._differences.append(target - value)

    def weighted(self, values: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
        """Return the same values, whose gradients are multiplied by the weights, row by row.

        Args:
            values: (B, ...).
            fixed: The same values without gradients; `values` itself if it has none.
        """
        if fixed is values:
            return values
        weight = self.weight
        if values.ndim != 2 or values.dtype is not torch.float32:
            weight = weight.reshape(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        # v + w (v - v), exactly v, has the gradient w, and needs no hook in Python on the way back
        return torch.lerp(fixed, values, weight)


class Watched(torch.Tensor):
    """Rewards, and tensors computed from them."""

    draw: Draw

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_compiling():
            raise ConfigError(COMPILED)
        with torch._C.DisableTorchFunctionSubclass():
            draw, learned = _watched(args)
            if kwargs and not (learned and draw):
                draw, learned = _watched(kwargs.values(), draw, learned)
            if learned and torch.is_grad_enabled():
                return _meet(cast("Draw", draw), func, args, kwargs or {})
            result = func(*args, **kwargs) if kwargs else func(*args)
            if type(result) is not torch.Tensor or not result.is_floating_point():
                return result
            for argument in args:
                if result is argument:
                    result = result.detach()
            return cast("Draw", draw).watch(result)


def _watched(values: Iterable[Any], draw: Draw | None = None, learned: bool = False) -> tuple[Draw | None, bool]:
    """Return the draw that watches tensors among nested values, and whether gradients may flow through one."""
    for value in values:
        if type(value) is Watched:
            draw = value.draw
        elif isinstance(value, torch.Tensor):
            learned = learned or value.requires_grad
        elif isinstance(value, NESTED):
            draw, learned = _watched(value.values() if isinstance(value, dict) else value, draw, learned)
    return draw, learned


def _meet(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a loss on a target and learned values, with weighted gradients, and record their difference."""
    name = getattr(func, "__name__", None) or repr(func)
    if name not in SEEN:
        raise ConfigError(
            f"the algorithm computes its loss from its targets by `{name}`, where no TD error can be seen; "
            "prioritized replay takes losses of a difference: `target - value`, or "
            f"{', '.join(sorted(LOSSES))} of torch.nn.functional"
        )
    if len(args) < 2:
        args = (*args, *(kwargs[name] for name in NAMED if name in kwargs))
        kwargs = {name: value for name, value in kwargs.items() if name not in NAMED}
    first, second, *rest = args
    first_fixed = first.detach() if first.requires_grad else first
    second_fixed = second.detach() if second.requires_grad else second
    draw.met(*((second_fixed, first_fixed) if first.requires_grad else (first_fixed, second_fixed)), name)
    return func(draw.weighted(first, first_fixed), draw.weighted(second, second_fixed), *rest, **kwargs)


def _array(values: torch.Tensor) -> npt.NDArray[Any]:
    if values.dtype is not torch.float32:
        values = values.float()
    array: npt.NDArray[Any] = values.numpy() if values.is_cpu else values.numpy(force=True)
    return array
