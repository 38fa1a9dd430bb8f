"""Layers of the networks of deep Q-learning, for the core and for PyTorch.

A network is convolutions with relu, if any, below a perceptron: hidden layers with relu, then one value an action.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from replaylab.errors import ConfigError

PixelNetworkName = Literal["nature", "data_efficient"]
"""The networks for pixels: of Mnih et al. 2015, or of van Hasselt, Hessel & Aslanides 2019."""


class Convolution(NamedTuple):
    """A convolution: filters of side × side pixels with a stride, without padding."""

    filters: int
    side: int
    stride: int


@dataclass(frozen=True)
class ImageLayers:
    """The layers of a network for images.

    Attributes:
        convolutions: From below.
        hidden: Widths of the layers above them.
        pixels: Whether observations are pixels, which are divided by 255; other numbers are unchanged.
    """

    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    pixels: bool = True

    @property
    def least_side(self) -> int:
        """Side of the smallest image for which every convolution has an output."""
        least = 1
        for convolution in reversed(self.convolutions):
            least = (least - 1) * convolution.stride + convolution.side
        return least


PIXEL_LAYERS: dict[PixelNetworkName, ImageLayers] = {
    "nature": ImageLayers((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), (512,)),
    "data_efficient": ImageLayers((Convolution(32, 5, 5), Convolution(64, 5, 5)), (256,)),
}


def pixel_layers(name: PixelNetworkName, space: Space[Any]) -> ImageLayers:
    """Return the layers of a network for pixels.

    Raises:
        ConfigError: The image is too small, or the channels come last.
    """
    layers, shape = PIXEL_LAYERS[name], space.shape or ()
    if min(shape[1:]) < layers.least_side:
        least = layers.least_side
        raise ConfigError(
            f"the network for pixels needs observations (channels, height, width) of at least {least} × {least}, but "
            f"they have the shape {shape}; change it with gymnasium.wrappers.TransformObservation, or set `module`"
        )
    return layers


def board_layers(filters: int, hidden: tuple[int, ...], space: Space[Any]) -> ImageLayers:
    """Return the layers of a network for small boards: filters of 3 × 3, stride 1, below the hidden layers.

    Raises:
        ConfigError: The observations are no boards, or too small.
    """
    shape = space.shape or ()
    if not isinstance(space, spaces.Box) or len(shape) != 3 or min(shape[1:]) < 3:
        raise ConfigError(
            f"`filters` of DQN need observations in a Box (channels, height, width) of at least 3 × 3, but they "
            f"are in {space}; set `filters` to 0, or use gymnasium.wrappers.TransformObservation"
        )
    return ImageLayers((Convolution(filters, 3, 1),), hidden, pixels=False)


def initial_blocks(
    shapes: Sequence[tuple[int, int]], draws: np.random.Generator
) -> list[npt.NDArray[np.floating[Any]]]:
    """Draw each layer's weights (O, I) and biases (O,) from U(−1/√I, 1/√I), as `torch.nn.Linear` does.

    Args:
        shapes: (O, I) of each layer; of a convolution the filters, and how many numbers each sees.
        draws: Generator of the random numbers, which are drawn in the order of the blocks.
    """
    return [
        draws.uniform(-bound, bound, size)
        for outputs, inputs in shapes
        for bound in [inputs**-0.5]
        for size in [(outputs, inputs), (outputs,)]
    ]
