"""Stable-Baselines3's algorithms by name, and their arguments as plain data."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replaylab.arguments import FRACTION, NOT_NEGATIVE, checked, one_of, shown
from replaylab.errors import ConfigError
from replaylab.extras import needs

NAMED = {
    **dict.fromkeys(("DQN", "DDPG", "TD3", "SAC"), "stable_baselines3"),
    **dict.fromkeys(("QRDQN", "TQC", "CrossQ"), "sb3_contrib"),
}
"""Module of each algorithm, by its name."""

REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""Form of a text that refers to a name in a module: ``module:Name``."""

DECIDED = {
    "policy": "which is a setting beside `arguments`",
    "env": "which is the study's environment",
    "seed": "which is the run's",
    "replay_buffer_class": "which is ReplayLabBuffer; strategies say how it draws",
    "tensorboard_log": "since the run itself records what is logged",
    "verbose": "since the run itself records what is logged",
    "stats_window_size": "since the run itself records every episode",
    "monitor_wrapper": "since it changes nothing that is recorded",
    "_init_setup_model": "without which there are no networks",
    "supported_action_spaces": "which is the algorithm's own business",
    "support_multi_env": "which is the algorithm's own business",
    "sde_support": "which is the algorithm's own business",
}
"""Arguments that cannot be passed, with the reason."""

OF_BUFFERS = ("compressed", "compute_terminated", "handle_timeout_termination")
"""Keys allowed in `replay_buffer_kwargs`; the strategy determines the rest."""

NOISES = ("normal", "ornstein_uhlenbeck")
SCHEDULES = ("constant", "linear", "exponential")
_THEIRS = ("stable_baselines3", "sb3_contrib", "torch")
"""Packages whose versions are recorded; their code is not part of a run's identity."""


def library() -> Any:
    """Return the integration with Stable-Baselines3.

    Raises:
        MissingExtraError: It is not installed.
    """
    return importlib.import_module("replaylab.integrations.sb3")


def find(name: str) -> type[Any]:
    """Return the class of an algorithm.

    Args:
        name: One of `NAMED`, or ``module:Class``.

    Raises:
        ConfigError: The class does not exist, or is not an off-policy algorithm.
        MissingExtraError: Stable-Baselines3, or sb3-contrib, is not installed.
    """
    library()
    if name in NAMED:
        with needs(name, "sb3"):
            imported = getattr(importlib.import_module(NAMED[name]), name)
    elif REFERENCE.fullmatch(name):
        imported = referred("algorithm", name)
    else:
        raise ConfigError(f'`algorithm` must be {", ".join(NAMED)} or a custom "module:Class", but got {name!r}')
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    if not (isinstance(imported, type) and issubclass(imported, OffPolicyAlgorithm)):
        raise ConfigError(
            f"`algorithm` must be an off-policy algorithm of Stable-Baselines3, which has a replay buffer, but got "
            f"{name!r}; derive yours from one of {', '.join(NAMED)}"
        )
    kind: type[Any] = imported
    return kind


def referred(where: str, name: str) -> Any:
    """Return the object that ``module:Name`` refers to.

    Raises:
        ConfigError: There is no such thing.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        reason = f"{module} has no {attribute!r}"
    except (Exception, SystemExit) as error:  # of the user's own module
        why = f"{type(error).__name__}: {error}"
        reason = f"{module} cannot be imported from {Path.cwd()} or the installed packages: {why}"
    raise ConfigError(f'`{where}` must name what is there, as "module:Name", but got {name!r}: {reason}')


def check_policy(algorithm: type[Any], policy: str) -> None:
    """Raise `ConfigError` unless the algorithm has this policy."""
    names = list(algorithm.policy_aliases)
    if policy not in names:
        raise ConfigError(f"`policy` of {algorithm.__name__} must be one of {', '.join(names)}, but got {policy!r}")


def completed(algorithm: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as plain data, with the algorithm's defaults for missing ones.

    Raises:
        ConfigError: The algorithm has no such argument, or a run cannot have this value.
    """
    name, parameters = algorithm.__name__, _parameters(algorithm)
    for key, value in arguments.items():
        if key in DECIDED:
            raise ConfigError(f"`arguments` of {name} must not hold `{key}`, {DECIDED[key]}; leave it out")
        if key not in parameters:
            names = ", ".join(sorted(parameters))
            raise ConfigError(f"`arguments` of {name} must be among {names}, but got {key!r}")
        _check_plain(f"arguments.{key}", value)
    _check_tables(arguments)
    defaults = {key: value for key, value in parameters.items() if value is not inspect.Parameter.empty}
    complete: dict[str, Any] = _plain({k: v for k, v in defaults.items() if _is_plain(v)} | {"device": "cpu"})
    lacking = [key for key, value in parameters.items() if value is inspect.Parameter.empty and key not in arguments]
    if lacking:
        raise ConfigError(f"`arguments` of {name} must hold `{lacking[0]}`, which has no default; add it")
    chosen: dict[str, Any] = _plain(dict(arguments))
    return {key: value for key, value in complete.items() if key in parameters} | chosen


def code_of(algorithm: str, arguments: Mapping[str, Any]) -> str:
    """Return the first digits of a SHA-256 over the custom modules that are named; without any, an empty text."""
    named = {text.partition(":")[0] for text in (algorithm, *_texts(arguments)) if REFERENCE.fullmatch(text)}
    own_modules = sorted(module for module in named if module.split(".")[0] not in _THEIRS)
    if not own_modules:
        return ""
    digest = hashlib.sha256()
    for module in own_modules:
        file = getattr(sys.modules.get(module), "__file__", None)
        digest.update(Path(file).read_bytes() if file else b"")
    return digest.hexdigest()[:16]


def _parameters(algorithm: type[Any]) -> dict[str, Any]:
    """Return the arguments of a constructor with their defaults, those passed on to its bases included."""
    defaults: dict[str, Any] = {}
    for kind in algorithm.__mro__:
        if "__init__" not in vars(kind):
            continue
        parameters = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
        named = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        defaults = named | defaults
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
            break
    return {name: default for name, default in defaults.items() if name not in DECIDED}


def _check_plain(name: str, value: Any) -> None:
    if not _is_plain(value):
        raise ConfigError(
            f'`{name}` must be plain data (numbers, texts, lists, tables), where "module:Name" stands for what is '
            f"called so in a module, but got {shown(value)}"
        )
    for text in _texts(value):
        if REFERENCE.fullmatch(text):
            referred(name, text)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _plain(value: Any) -> Any:
    """Return plain data as after a round trip through JSON: lists for tuples."""
    return json.loads(json.dumps(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _check_tables(arguments: Mapping[str, Any]) -> None:
    """Check the objects made from tables before a run begins."""
    buffer = arguments.get("replay_buffer_kwargs") or {}
    if not isinstance(buffer, Mapping) or set(buffer) - set(OF_BUFFERS):
        raise ConfigError(
            f"`arguments.replay_buffer_kwargs` must hold {', '.join(OF_BUFFERS)} only, but got {shown(buffer)}; "
            "strategies say what is drawn, and what it becomes"
        )
    noise = arguments.get("action_noise")
    if noise is not None:
        settings = noise if isinstance(noise, Mapping) else {}
        checked("arguments.action_noise.type", settings.get("type"), one_of(*NOISES))
        checked("arguments.action_noise.sigma", settings.get("sigma"), NOT_NEGATIVE)
        further = set() if settings["type"] == "normal" else {"theta", "dt"}
        allowed = {"type", "sigma"} | further
        if wrong := sorted(set(settings) - allowed):
            raise ConfigError(
                f"`arguments.action_noise` must hold {', '.join(sorted(allowed))} only, but got {wrong[0]!r}"
            )
        for key in sorted(further & set(settings)):
            checked(f"arguments.action_noise.{key}", settings[key], NOT_NEGATIVE)
    if "gamma" in arguments:
        checked("arguments.gamma", arguments["gamma"], FRACTION)
    rate = arguments.get("learning_rate")
    if isinstance(rate, Mapping):
        schedule_of(rate)


def schedule_of(table: Mapping[str, Any]) -> Any:
    """Return a schedule in the library's form: a function of the remaining share of training, from 1 to 0.

    Raises:
        ConfigError: The table describes none.
    """
    from replaylab import replay

    where = "arguments.learning_rate"
    kind = getattr(replay, checked(f"{where}.type", table.get("type"), one_of(*SCHEDULES)).title())
    try:
        schedule = kind(**{key: value for key, value in table.items() if key != "type"})
    except TypeError as error:
        raise ConfigError(
            f"`{where}` must be a schedule of type {table['type']}, but got {shown(dict(table))}"
        ) from error
    return lambda remaining: schedule(min(max(1.0 - remaining, 0.0), 1.0))
