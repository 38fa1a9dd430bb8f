"""Multilayer perceptrons of R replicas, evaluated and differentiated by one batched product a layer.

Shapes: R replicas, B rows, I inputs and O outputs of a layer. Gradients are written out by hand: the two
products of a dense layer are known in closed form, and at these sizes recording a graph costs more than the
arithmetic. The tests compare them with autograd's.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

NARROW = 16
"""Below this many columns a product is computed transposed, which is several times faster."""


class Dense:
    """y = relu(x Wᵀ + b), or without the relu, for R replicas at once.

    The layer keeps its latest input and output, which `backward` refers to, and reuses the memory of its
    hidden outputs: a result is valid until the next `forward` with equally many rows.

    Args:
        weight: W float32 (R, O, I).
        bias: b float32 (R, O).
        grad_weight: Where `backward` writes ∂L/∂W, (R, O, I).
        grad_bias: Where `backward` writes ∂L/∂b, (R, O).
        relu: Whether negative outputs become 0.
    """

    def __init__(self, weight: Tensor, bias: Tensor, grad_weight: Tensor, grad_bias: Tensor, *, relu: bool) -> None:
        self.weight, self.bias = weight, bias
        self.grad_weight, self.grad_bias = grad_weight, grad_bias
        self.relu = relu
        self._weight_t = weight.transpose(1, 2)
        self._bias_row, self._bias_column = bias.unsqueeze(1), bias.unsqueeze(2)
        self._memory: dict[int, Tensor] = {}
        self._grad_memory: dict[int, Tensor] = {}
        self._input = self._output = weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (R, B, O) for inputs (R, B, I)."""
        if self.weight.shape[1] < NARROW:
            y = torch.baddbmm(self._bias_column, self.weight, x.transpose(1, 2)).transpose(1, 2)
        else:
            memory = _memory(self._memory, x, self.weight.shape[1])
            y = torch.baddbmm(self._bias_row, x, self._weight_t, out=memory)
        if self.relu:
            y.relu_()
        self._input, self._output = x, y
        return y

    def backward(self, grad: Tensor, *, to_input: bool) -> Tensor:
        """Write the gradients of the parameters for the latest `forward`.

        Args:
            grad: ∂L/∂y (R, B, O); overwritten if the layer has a relu.
            to_input: Whether the layer below needs ∂L/∂x.

        Returns:
            ∂L/∂x (R, B, I); if not `to_input`, something of no meaning.
        """
        if self.relu:
            torch.ops.aten.threshold_backward.grad_input(grad, self._output, 0.0, grad_input=grad)
        torch.sum(grad, 1, out=self.grad_bias)
        if self._input.shape[2] < NARROW:
            self.grad_weight.copy_(torch.bmm(self._input.transpose(1, 2), grad).transpose(1, 2))
        else:
            torch.bmm(grad.transpose(1, 2), self._input, out=self.grad_weight)
        if not to_input:
            return grad
        return torch.bmm(grad, self.weight, out=_memory(self._grad_memory, grad, self.weight.shape[2]))


class MultiLayerPerceptron:
    """R multilayer perceptrons with relu between the layers.

    All parameters lie in one flat tensor and their gradients in another of the same layout, so that an
    optimiser step, or a copy to a target network, is a few calls whatever the depth. Every layer's block
    has the shape (R, ...).

    Args:
        sizes: Widths, from the inputs to the outputs.
        replicas: R.

    Attributes:
        parameters: float32 (R·P,) of the P parameters of each replica.
        gradients: float32 (R·P,).
        layers: The `Dense` layers, first to last; views of the two.
    """

    def __init__(self, sizes: Sequence[int], replicas: int) -> None:
        self._shapes = [(replicas, *shape) for i, o in pairwise(sizes) for shape in ((o, i), (o,))]
        self.parameters, self.gradients = (torch.zeros(sum(map(math.prod, self._shapes))) for _ in range(2))
        values, grads = self.blocks(self.parameters), self.blocks(self.gradients)
        self.layers = [
            Dense(*values[i : i + 2], *grads[i : i + 2], relu=i + 2 < len(values)) for i in range(0, len(values), 2)
        ]

    def blocks(self, flat: Tensor) -> list[Tensor]:
        """Return a tensor of the parameters' layout as views (R, ...): weight and bias of each layer in turn."""
        parts = torch.split(flat, [math.prod(shape) for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def initialise(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw replica r by generator r, all from U(−1/√I, 1/√I) as `torch.nn.Linear` does."""
        for r, generator in enumerate(generators):
            for layer in self.layers:
                for values in (layer.weight[r], layer.bias[r]):
                    bound = 1.0 / np.sqrt(layer.weight.shape[2])
                    values.copy_(torch.from_numpy(generator.uniform(-bound, bound, size=tuple(values.shape))))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (R, B, O) for inputs float32 (R, B, I)."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, grad: Tensor) -> None:
        """Write ∂L/∂parameters into `gradients`, given ∂L/∂outputs (R, B, O) of the latest `forward`."""
        for depth in range(len(self.layers) - 1, -1, -1):
            grad = self.layers[depth].backward(grad, to_input=depth > 0)

    def clip_gradients(self, max_norm: float) -> None:
        """Scale each replica's gradient to a Euclidean norm of at most `max_norm`."""
        blocks = [block for layer in self.layers for block in (layer.grad_weight, layer.grad_bias)]
        norms = torch.stack([torch.linalg.vector_norm(block.flatten(1), dim=1) for block in blocks])
        scale = (max_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp_(max=1.0)
        for block in blocks:
            block.mul_(scale.view(-1, *[1] * (block.ndim - 1)))

    def copy_from(self, other: "MultiLayerPerceptron") -> None:
        """Take over the other network's parameters."""
        self.parameters.copy_(other.parameters)


def _memory(kept: dict[int, Tensor], like: Tensor, width: int) -> Tensor:
    """Return the kept tensor (R, B, width) for as many rows B as `like` has."""
    rows = like.shape[1]
    if rows not in kept:
        kept[rows] = torch.empty(like.shape[0], rows, width)
    return kept[rows]
