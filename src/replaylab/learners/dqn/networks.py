"""The networks of deep Q-learning as PyTorch modules.

Shapes: B rows, A actions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replaylab.learners.dqn.layers import ImageLayers, initial_blocks


class Perceptron(nn.Module):
    """The perceptron of the compiled core in PyTorch: for other devices, and as its reference.

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


class ConvolutionalNetwork(nn.Module):
    """Convolutions with relu below a perceptron: the core's network in PyTorch.

    Args:
        shape: (channels, height, width) of the observations.
        layers: The convolutions and the hidden layers' widths.
        num_actions: A.
        dueling: As in `Perceptron`.
    """

    def __init__(self, shape: tuple[int, ...], layers: ImageLayers, num_actions: int, *, dueling: bool = False) -> None:
        super().__init__()
        channels, self.scale = shape[0], 1.0 / 255.0 if layers.pixels else 1.0
        convolutions: list[nn.Module] = []
        for filters, side, stride in layers.convolutions:
            convolutions.append(nn.Conv2d(channels, filters, side, stride))
            channels = filters
        # Pixel by pixel: faster on GPUs, and the order of the core. PyTorch's annotations know nothing of it.
        self.convolutions = nn.ModuleList(convolutions).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        features = self._features(torch.zeros(1, *shape)).shape[1]
        self.top = Perceptron(features, layers.hidden, num_actions, dueling=dueling)

    def forward(self, x: Tensor) -> Tensor:
        """Return Q(s, ·) (B, A) for observations (B, channels, height, width)."""
        q: Tensor = self.top(self._features(x))
        return q

    def _features(self, x: Tensor) -> Tensor:
        x = x.to(self.convolutions[0].weight.dtype, memory_format=torch.channels_last) * self.scale
        for convolution in self.convolutions:
            x = torch.relu(convolution(x))
        return x.permute(0, 2, 3, 1).flatten(1)


@torch.no_grad()
def initialised(network: nn.Module, draws: np.random.Generator) -> nn.Module:
    """Set the initial weights of the core's network for the same draws, from below; return the network."""
    layers: list[Any] = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    blocks = iter(initial_blocks([layer.weight.flatten(1).shape for layer in layers], draws))
    for layer in layers:
        layer.weight.copy_(in_layers_order(torch.from_numpy(next(blocks)), layer.weight))
        layer.bias.copy_(torch.from_numpy(next(blocks)))
    return network


def in_layers_order(block: Tensor, weight: Tensor) -> Tensor:
    """Return the core's weights (O, I) of a layer in the shape of PyTorch's: of filters with the channels first."""
    if weight.ndim == 2:
        return block.view_as(weight)
    filters, channels, height, width = weight.shape
    return block.view(filters, height, width, channels).permute(0, 3, 1, 2)
