"""Functions that change a replay's tensors, each as one operator of PyTorch in compiled functions.

A compiler that sees such a function's operations copies the tensors that it changes. As an operator, it changes them in
place. Not compiled, the function is called directly, which saves the time of dispatching an operator.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.compiler import is_compiling

LIBRARY = torch.library.Library("replaylab", "DEF")  # type: ignore[no-untyped-call]


def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the device of the first tensor PyTorch's current one in a function: Triton launches kernels there."""

    @wraps(function)
    def call(*args: Any) -> Any:
        device = (args[0][0] if isinstance(args[0], list) else args[0]).device
        if device.type != "cuda" or device.index == torch.cuda.current_device():
            return function(*args)
        with torch.cuda.device(device):
            return function(*args)

    return call


def operator(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under the name of its schema, in which ``!`` marks tensors that it changes.

    If its last argument is `triton`, whether to run kernels of Triton, a compiler gets its shapes from the other ones.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        guarded = on_its_device(function)
        LIBRARY.define(schema)  # type: ignore[no-untyped-call]
        LIBRARY.impl(name, guarded, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]

        def shapes(*args: Any) -> Any:
            return function(*args[:-1], False) if "bool triton)" in schema else function(*args)

        torch.library.register_fake(f"replaylab::{name}", shapes, lib=LIBRARY)
        compiled = getattr(torch.ops.replaylab, name).default

        @wraps(function)
        def call(*args: Any) -> Any:
            return compiled(*args) if is_compiling() else guarded(*args)

        return call

    return decorate
