"""Test whether Triton's kernels run, by running one."""

import os
import warnings
from functools import cache
from importlib import import_module

import torch

from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.torch.options import DeviceOptions

LEAST_VERSION = (3, 2)
"""Oldest supported version: earlier interpreters of Triton return wrong results with NumPy 2."""


def kernels_run(options: DeviceOptions) -> bool:
    """Return whether a replay runs Triton's kernels; if it could but they fail, warn once.

    Raises:
        ConfigError: ``kernels="triton"``, and they do not run.
        MissingExtraError: ``kernels="triton"``, and Triton is not installed.
    """
    device, wanted = options.device, options.kernels
    if wanted == "torch" or (wanted == "auto" and device.type != "cuda"):
        return False
    if wanted == "triton":
        with needs('kernels="triton"', "triton"):
            import_module("triton")
    reason = _failure(device)
    if reason and wanted == "triton":
        raise ConfigError(
            f'`kernels` must be "torch" or "auto" here, since Triton\'s do not run on {device} ({reason}); on a CPU '
            "they run only in Triton's interpreter (TRITON_INTERPRET=1)"
        )
    return not reason


@cache
def _failure(device: torch.device) -> str:
    """Return the reason why the kernels do not run on a device, "" if they do; warn on a GPU, where they should run."""
    try:
        version = tuple(map(int, import_module("triton").__version__.split(".")[:2]))
        if version < LEAST_VERSION:
            raise RuntimeError(f"Triton must be at least version 3.2, but is {version[0]}.{version[1]}")
        if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            raise RuntimeError("there is no GPU")
        import_module("replaylab.torch.drawing.kernels").probe(device)
    except Exception as error:  # of any kind: no compiler, no driver, another Triton
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if device.type == "cuda":
            warnings.warn(
                f"Triton's kernels do not run on {device} ({reason}), so DeviceReplay uses PyTorch's operations, which "
                'are slower. Install "replaylab[triton]" and a C compiler, or pass kernels="torch"',
                stacklevel=6,
            )
        return reason
    return ""
