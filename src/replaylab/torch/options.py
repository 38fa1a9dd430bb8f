"""Options of a `DeviceReplay`: those of a `ReplayBuffer` that devices support, and its own. Whether kernels run."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch

from replaylab.arguments import SHARE, InvalidArgument, Rule, checked, instance, one_of
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError, FieldError
from replaylab.extras import needs
from replaylab.replay import LAP, Combined, FrameStack, Geometric, NStep, Prioritized, Recency, ReLo, Sampler, Uniform
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.fields import Field, need_field

SAMPLERS = (Uniform, Combined, Recency, Geometric, Prioritized, ReLo, LAP)
TRANSFORMS = (NStep, FrameStack)
RULES: dict[str, Rule[Any]] = {"final_obs_share": SHARE, "kernels": one_of("auto", "torch", "triton")}
"""Rules for options that only a device has."""

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}

LEAST_VERSION = (3, 4)
"""Oldest supported version of Triton: earlier ones cannot pass tuples of constants on to functions."""


@dataclass(frozen=True)
class DeviceOptions:
    """The options of a `DeviceReplay`, which documents them.

    Attributes:
        config: The options that a `ReplayBuffer` has, too.
        device: Device of all tensors.
        half: The fields stored in 16 bits, with their dtypes.
        final_obs_share: The size of the side ring, as a share of the capacity.
        kernels: Implementation that runs.
        dtypes: The dtypes of the fields, by path.
    """

    config: BufferConfig
    device: torch.device
    half: Mapping[str, str]
    final_obs_share: float
    kernels: str
    dtypes: dict[str, torch.dtype] = dataclass_field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, rule in RULES.items():
            object.__setattr__(self, name, checked(name, getattr(self, name), rule))
        object.__setattr__(self, "half", checked("half", self.half, instance(Mapping, "a mapping of field to dtype")))
        check_config(self.config)
        flat = self.config.flat
        object.__setattr__(self, "dtypes", {path: torch_dtype(path, field) for path, field in flat.items()})
        for path, name in self.half.items():
            if path not in flat or flat[path].dtype.kind != "f" or name not in tuple(HALVES):
                raise ConfigError(
                    '`half` must map floating fields to "float16" or "bfloat16", but got '
                    f"{path!r}: {name!r}; the fields are {', '.join(flat)}"
                )

    @property
    def envs(self) -> int:
        """E, or 1 if there is no environment axis."""
        return self.config.num_envs or 1

    @property
    def derived(self) -> bool:
        """Whether next observations are derived."""
        return self.config.next_obs == "derived"

    @property
    def n_step(self) -> NStep | None:
        """The transform, if there is one."""
        return self.config.transform(NStep)

    @property
    def stack(self) -> FrameStack | None:
        """The transform, if there is one."""
        return self.config.transform(FrameStack)


def torch_dtype(path: str, field: Field) -> torch.dtype:
    """Return the dtype of PyTorch that a field has.

    Raises:
        FieldError: PyTorch has no such dtype.
    """
    try:
        return torch.from_numpy(np.zeros(0, field.dtype)).dtype
    except TypeError:
        raise FieldError(
            f"field `{path}` must have a dtype that PyTorch supports, but got {field.dtype}; declare another one"
        ) from None


def top(path: str) -> str:
    """Return the name of the field that a path belongs to."""
    return path.partition(".")[0]


def device_of(value: Any) -> torch.device:
    """Return a device of PyTorch.

    Raises:
        ConfigError: It is not one.
    """

    def take(value: Any) -> torch.device:
        try:
            device = torch.device(value)
        except (RuntimeError, TypeError):
            raise InvalidArgument('a device of PyTorch such as "cuda" or "cpu"') from None
        try:
            return torch.empty(0, device=device).device  # with its number
        except Exception as error:  # of any kind: no CUDA in this PyTorch, no driver, no GPU of this number
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InvalidArgument("a device that PyTorch can use here", fix=f'pass device="cpu" ({reason})') from None

    return checked("device", value, take)


def check_config(config: BufferConfig) -> None:
    """Raise `ConfigError` or `FieldError` for an option that only `ReplayBuffer` supports."""
    envs = config.num_envs or 1
    if config.capacity % envs:
        raise ConfigError(
            f"`capacity` must be a multiple of `num_envs`, but got (capacity={config.capacity:,}, num_envs={envs:,}); "
            f"use {config.capacity // envs * envs:,}"
        )
    if config.autoreset == "next_step":
        raise ConfigError(
            '`autoreset` of DeviceReplay must be None, "same_step" or "disabled", but got "next_step", whose resetting '
            "steps are not stored; reset the environments in the same step, or use a ReplayBuffer"
        )
    for path, field in config.flat.items():
        torch_dtype(path, field)
        if field.compressed:
            raise FieldError(f"field `{path}` must not be compressed in a DeviceReplay; leave out compressed=True")
    for name in ENDS:
        if name in (top(path) for path in config.flat):
            need_field("DeviceReplay", config.flat, name, Field((), np.bool_))
    _check_sampler(config.sampler)
    for transform in config.transforms:
        if type(transform) not in TRANSFORMS:
            raise ConfigError(
                f"`transforms` of DeviceReplay must be NStep or FrameStack, but got {type(transform).__name__}; use a "
                "ReplayBuffer for others"
            )
        if isinstance(transform, FrameStack):
            _check_stack(transform)


def _check_sampler(sampler: Sampler) -> None:
    if type(sampler) not in SAMPLERS:
        names = ", ".join(kind.__name__ for kind in SAMPLERS)
        raise ConfigError(
            f"`sampler` of DeviceReplay must be one of {names}, but got {type(sampler).__name__}; use a ReplayBuffer "
            "for others"
        )
    for name, needed in (("replace", True), ("distinct", False), ("block_length", 1)):
        if getattr(sampler, name, needed) != needed:
            raise ConfigError(
                f"`{name}` of {type(sampler).__name__} must be {needed} in a DeviceReplay, but got "
                f"{getattr(sampler, name)}; leave it out, or use a ReplayBuffer"
            )


def _check_stack(stack: FrameStack) -> None:
    if stack.stacked_input or any(top(path) != "obs" for path in stack.fields):
        raise ConfigError(
            "FrameStack in a DeviceReplay must stack single frames inside `obs`, but got "
            f"fields={stack.fields}, stacked_input={stack.stacked_input}; give single frames of `obs`"
        )


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
            least = ".".join(map(str, LEAST_VERSION))
            raise RuntimeError(f"Triton must be at least version {least}, but is {version[0]}.{version[1]}")
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
