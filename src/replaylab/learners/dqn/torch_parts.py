"""PyTorch's side of settings: optimizers, precision and devices."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from replaylab.errors import ConfigError
from replaylab.learners.dqn.optimizers import SGD, Adam, RMSprop
from replaylab.learners.dqn.settings import DQNSettings, Precision
from replaylab.replay import as_schedule


def torch_optimizer(settings: DQNSettings, network: nn.Module) -> tuple[torch.optim.Optimizer, tuple[str, ...]]:
    """Return PyTorch's optimizer for a network, and the names of its averages of each parameter.

    On a GPU, for a replay on the device, it can be captured in CUDA graphs, unless the module is custom: its learning
    rate is a tensor.
    """
    chosen, parameters = settings.optimizer, list(network.parameters())
    rate: Any = as_schedule(settings.learning_rate)(0.0)
    captured = settings.replay == "device" and settings.module is None and parameters[0].is_cuda
    if captured:
        rate = torch.tensor(rate, device=parameters[0].device)
    capturable: dict[str, Any] = {"capturable": True} if captured else {}
    if isinstance(chosen, RMSprop):
        rmsprop = torch.optim.RMSprop(
            parameters, rate, chosen.decay, chosen.epsilon, centered=chosen.centered, **capturable
        )
        return rmsprop, ("square_avg", "grad_avg") if chosen.centered else ("square_avg",)
    if isinstance(chosen, SGD):
        fused: dict[str, Any] = {"fused": True} if captured else {}
        sgd = torch.optim.SGD(parameters, rate, momentum=chosen.momentum, **fused)
        return sgd, ("momentum_buffer",) if chosen.momentum else ()
    assert isinstance(chosen, Adam)
    betas = (chosen.beta1, chosen.beta2)
    adam = torch.optim.Adam(parameters, rate, betas, chosen.epsilon, fused=True, **capturable)
    return adam, ("exp_avg", "exp_avg_sq")


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Context manager: with "tf32", products of float32 matrices may be rounded to TF32, forwards and backwards.

    Convolutions may by PyTorch's default.
    """
    if precision != "tf32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def usable_device(name: str) -> torch.device:
    """Return the device of this name.

    Raises:
        ConfigError: PyTorch has no such device, or it is not available.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        rule = '`device` of DQN must be one that PyTorch can use here, such as "cpu"'
        raise ConfigError(f"{rule}, but got {name!r}: {error}") from error
    return device
