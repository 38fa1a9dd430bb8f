"""Weights into an algorithm's loss, and TD errors out of it, by way of the rewards that it is given.

Every off-policy algorithm makes its targets of the batch's rewards, and its loss of the differences between targets and
what its networks say. So the rewards of a batch are tensors that watch what is made of them: where such a target meets
values that gradients flow through, in a difference or in a loss that is one, the differences are the TD errors, and
each row's gradient is multiplied by the row's weight. This is the gradient of the weighted loss, for any loss that is a
mean over rows. The networks never see these tensors, so it does not matter what they are, or whether they are compiled.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from replaylab.errors import ConfigError

LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
"""Losses of `torch.nn.functional` that are functions of a difference."""

DIFFERENCES = {"sub", "__sub__", "rsub", "__rsub__", "subtract"}

COMPILED = (
    "the algorithm's loss is compiled (torch.compile), where no TD error can be seen; compile the networks instead "
    "(`model.critic.compile()`), of which WithPriorities takes no notice"
)


class Draw:
    """A batch that was handed out, with what came back for it.

    Attributes:
        ids: int64 (B,).
        weight: float32 (B,), on the device of the batch.
    """

    def __init__(self, ids: npt.NDArray[np.int64], weight: torch.Tensor) -> None:
        self.ids, self.weight = ids, weight
        self._errors: list[torch.Tensor] = []

    def watch(self, values: torch.Tensor) -> "Watched":
        """Return the same values as a tensor that this draw watches."""
        watched = values.as_subclass(Watched)
        watched.draw = self
        return watched

    def errors(self) -> npt.NDArray[np.float64] | None:
        """Return |δ| of every row, the mean over critics (B,); None where no difference was seen."""
        if not self._errors:
            return None
        errors = torch.stack(self._errors).mean(0)
        return errors.cpu().numpy().astype(np.float64)

    def weighted(self, values: torch.Tensor, what: str) -> torch.Tensor:
        """Return the same values, whose gradients are multiplied by the weights, row by row."""
        rows = len(self.ids)
        if not values.ndim or len(values) != rows:
            raise ConfigError(
                f"the loss ({what}) must have the {rows} rows of the batch as its first axis, to be weighted row by "
                f"row, but has shape {tuple(values.shape)}; compute it critic by critic"
            )
        weight = self.weight.reshape(rows, *[1] * (values.ndim - 1))
        same = values.view_as(values)
        same.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call] # of torch
        return same

    def met(self, difference: torch.Tensor) -> None:
        """Take note of the differences between targets and values, (B, ...)."""
        if difference.ndim >= 3:  # all pairs of quantiles: their mean is the difference of the means
            difference = difference.mean((-2, -1))
        self._errors.append(difference.abs().reshape(len(self.ids), -1).mean(1))


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
            draw = next(one.draw for one in tensors((args, kwargs)) if isinstance(one, cls))
            learned = torch.is_grad_enabled() and any(one.requires_grad for one in tensors((args, kwargs)))
            if learned:
                return _meet(draw, func, args, kwargs)
            made = func(*args, **kwargs)
            return draw.watch(made) if type(made) is torch.Tensor and made.is_floating_point() else made


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested arguments."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors(value)
    elif isinstance(values, dict):
        yield from tensors(list(values.values()))


def _meet(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function makes of a target and of values that are learned, weighted, and note their difference."""
    name = getattr(func, "__name__", repr(func))
    if name not in LOSSES | DIFFERENCES:
        raise ConfigError(
            f"the algorithm's loss is made of its targets by `{name}`, where no TD error can be seen; WithPriorities "
            f"takes losses of a difference: `target - value`, or {', '.join(sorted(LOSSES))} of torch.nn.functional"
        )
    names = [f"{place}" for place in range(len(args))] + list(kwargs)
    values = [*args, *kwargs.values()]
    pair = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)][:2]
    for place in pair:
        if values[place].requires_grad:
            values[place] = draw.weighted(values[place], name)
    first, second = (values[place] for place in pair)
    made = func(*values[: len(args)], **dict(zip(names[len(args) :], values[len(args) :], strict=True)))
    draw.met((first.detach() - second.detach()) if name in LOSSES else made.detach())
    return made
