"""The Adam optimiser on one flat tensor."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) in place, with PyTorch's defaults.

    ``m ← β₁m + (1 − β₁)g``, ``v ← β₂v + (1 − β₂)g²``, ``θ ← θ − λ·m̂ / (√v̂ + ε)``, with m̂ and v̂ the averages
    divided by 1 − βᵗ. Every parameter is treated alike and alone, so R replicas in one tensor are optimised
    exactly as R separate ones. `torch.optim.Adam` does the same; for one small tensor most of its time goes
    into its bookkeeping.

    Attributes:
        parameters: θ float32, any shape; changed by `step`.
        learning_rate: λ.
        steps: t, steps taken.
        mean: m, as θ.
        square: v, as θ.
    """

    parameters: Tensor
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    steps: int = 0
    mean: Tensor = field(init=False)
    square: Tensor = field(init=False)
    _scratch: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mean, self.square, self._scratch = (torch.zeros_like(self.parameters) for _ in range(3))

    def step(self, gradients: Tensor) -> None:
        """Move the parameters against the gradients, of the same shape."""
        self.steps += 1
        self.mean.lerp_(gradients, 1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradients, gradients, value=1.0 - self.beta2)
        root = math.sqrt(1.0 - self.beta2**self.steps)
        torch.sqrt(self.square, out=self._scratch).add_(self.epsilon * root)
        rate = self.learning_rate * root / (1.0 - self.beta1**self.steps)
        self.parameters.addcdiv_(self.mean, self._scratch, value=-rate)
