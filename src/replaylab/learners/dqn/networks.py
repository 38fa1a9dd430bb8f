"""The networks of deep Q-learning as PyTorch modules.

Shapes: B rows, A actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replaylab.errors import ConfigError
from replaylab.learners.dqn.perceptrons import PixelNetworkName, initial_blocks


class Perceptron(nn.Module):
    """The network of `PerceptronAgents` in PyTorch: for other devices, above convolutions, and as its reference.

    Args:
        inputs: Numbers in one row.
        hidden: Widths of the hidden layers, with relu.
        num_actions: A.
        dueling: Whether the last hidden layer is doubled, one half below the state's value V, one below the
            advantages; then Q = V + advantage − mean advantage (Wang et al. 2016, equation 9).
    """

    def __init__(self, inputs: int, hidden: Sequence[int], num_actions: int, *, dueling: bool = False) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        outputs = [*hidden]
        if dueling:
            outputs[-1] *= 2
        self.hidden = nn.ModuleList(map(nn.Linear, widths[:-1], outputs))
        heads = (1, num_actions) if dueling else (num_actions,)
        self.heads = nn.ModuleList(nn.Linear(widths[-1], width) for width in heads)

    def forward(self, x: Tensor) -> Tensor:
        """Return Q(s, ·) (B, A)."""
        for layer in self.hidden:
            x = torch.relu(layer(x))
        q: Tensor
        if len(self.heads) == 1:
            q = self.heads[0](x)
            return q
        value, advantage = (head(half) for head, half in zip(self.heads, x.chunk(2, -1), strict=True))
        q = value + advantage - advantage.mean(-1, keepdim=True)
        return q

    def initialise(self, draws: np.random.Generator) -> "Perceptron":
        """Start where the core's network of the same draws starts, and return this one."""
        _initialise([*self.hidden, *self.heads], draws)
        return self


class FilteredPerceptron(nn.Module):
    """The core's network with `filters`: a convolution of 3 × 3, stride 1, with relu, below a perceptron.

    Args:
        shape: (channels, height, width) of the observations.
        filters: Of the convolution.
        hidden: Of the perceptron.
        num_actions: A.
        dueling: As in `Perceptron`.
    """

    def __init__(
        self, shape: tuple[int, ...], filters: int, hidden: Sequence[int], num_actions: int, *, dueling: bool = False
    ) -> None:
        super().__init__()
        channels, height, width = shape
        self.convolution = nn.Conv2d(channels, filters, 3)
        self.top = Perceptron(filters * (height - 2) * (width - 2), hidden, num_actions, dueling=dueling)

    def forward(self, x: Tensor) -> Tensor:
        """Return Q(s, ·) (B, A) for observations (B, channels, height, width)."""
        q: Tensor = self.top(torch.relu(self.convolution(x.to(self.convolution.weight.dtype))).flatten(1))
        return q

    def initialise(self, draws: np.random.Generator) -> "FilteredPerceptron":
        """Start where the core's network of the same draws starts, and return this one."""
        _initialise([self.convolution, *self.top.hidden, *self.top.heads], draws)
        return self


@torch.no_grad()
def _initialise(layers: Sequence[Any], draws: np.random.Generator) -> None:
    blocks = iter(initial_blocks([layer.weight.flatten(1).shape for layer in layers], draws))
    for layer in layers:
        layer.weight.copy_(torch.from_numpy(next(blocks)).view_as(layer.weight))
        layer.bias.copy_(torch.from_numpy(next(blocks)))


@dataclass(frozen=True)
class PixelLayers:
    """What a network for pixels is made of: convolutions, each (filters, side, stride), and a hidden layer above."""

    convolutions: tuple[tuple[int, int, int], ...]
    hidden: int


PIXEL_LAYERS: dict[PixelNetworkName, PixelLayers] = {
    "nature": PixelLayers(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),  # Mnih et al. 2015
    "data_efficient": PixelLayers(((32, 5, 5), (64, 5, 5)), 256),  # van Hasselt, Hessel & Aslanides 2019
}


class PixelNetwork(nn.Module):
    """A network for pixels: convolutions with relu, then a perceptron of one hidden layer.

    Args:
        shape: (channels, height, width) of the uint8 observations; scaled by 1/255 inside.
        num_actions: A.
        layers: The convolutions and the hidden layer's width.
        dueling: As in `Perceptron`.

    Raises:
        ConfigError: The image is too small, or the channels come last.
    """

    def __init__(self, shape: tuple[int, ...], num_actions: int, layers: PixelLayers, *, dueling: bool = False) -> None:
        super().__init__()
        channels, height, width = shape
        least = _least_side(layers)
        if min(height, width) < least:
            raise ConfigError(
                f"the network for pixels needs observations (channels, height, width) of at least {least} × {least}, "
                f"but they have the shape {shape}; change it with gymnasium.wrappers.TransformObservation, or set "
                "`module`"
            )
        parts: list[nn.Module] = []
        for filters, side, stride in layers.convolutions:
            parts += [nn.Conv2d(channels, filters, side, stride), nn.ReLU()]
            channels = filters
        convolutions = nn.Sequential(*parts, nn.Flatten())
        # Pixel by pixel: faster on processors and GPUs. PyTorch's annotations know nothing of it.
        self.convolutions = convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        features = self.convolutions(torch.zeros(1, *shape)).shape[1]
        self.top = Perceptron(features, (layers.hidden,), num_actions, dueling=dueling)

    def forward(self, x: Tensor) -> Tensor:
        """Return Q(s, ·) (B, A) for images uint8 (B, channels, height, width)."""
        images = x.to(torch.float32, memory_format=torch.channels_last)
        q: Tensor = self.top(self.convolutions(images / 255.0))
        return q


def _least_side(layers: PixelLayers) -> int:
    """Return the side of the smallest image that leaves each convolution at least one place."""
    least = 1
    for _, side, stride in reversed(layers.convolutions):
        least = (least - 1) * stride + side
    return least
