"""rl-zoo3's runner with this library's replay: its hyperparameters and folders, our buffer and algorithms.

    python -m replaylab.integrations.zoo --algo sac --env Pendulum-v1
    python -m replaylab.integrations.zoo --algo prioritized_sac --env Pendulum-v1 --replay "sampler=Prioritized(0.6)"
    python -m replaylab.integrations.zoo enjoy --algo prioritized_sac --env Pendulum-v1 --no-render

All of its options can be given. ``--replay NAME=VALUE ...`` are arguments of `ReplayLabBuffer`, as is
``replay_buffer_kwargs`` in its files of hyperparameters; samplers, schedules and storages of `replaylab.replay` are
written as in Python. This text is not executed: it may hold their names, and plain values.

Importing rl-zoo3, and so this module, changes Gymnasium in the whole process: every environment made afterwards has a
`TimeLimit` of rl-zoo3's. In a program that does other things too, run it as its own process.
"""

import argparse
import ast
import inspect
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from replaylab import replay
from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.replay import MappedStorage, Sampler, Schedule

with needs("replaylab.integrations.zoo", "zoo"):
    from rl_zoo3 import enjoy, exp_manager, hyperparams_opt, train, utils

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from replaylab.integrations import sb3, sb3_contrib
from replaylab.integrations.sb3 import ReplayLabBuffer

__all__ = ["configured", "main", "register"]

PREFIX = "prioritized_"

KINDS: dict[str, type] = {
    name: kind
    for name in replay.__all__
    if inspect.isclass(kind := getattr(replay, name)) and issubclass(kind, Sampler | Schedule | MappedStorage)
}
"""Classes whose calls text may contain."""


def configured(text: str) -> Any:
    """Return the value of a text: a plain value, or a sampler, schedule or storage of `replaylab.replay`.

    Nothing is executed.

    Raises:
        ConfigError: The text is anything else.

    Example:
        >>> configured("Prioritized(alpha=0.5, beta=Linear(0.4, 1.0))").alpha
        0.5
    """
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the replay's options must be plain values, or samplers, schedules and storages of replaylab.replay such "
            f"as Prioritized(alpha=0.6), but got {text!r}: {error}"
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple | ast.List):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        options = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if len(options) == len(node.keywords) and node.func.id in {"dict", *KINDS}:
            return (dict if node.func.id == "dict" else KINDS[node.func.id])(*map(_value, node.args), **options)
        raise ValueError(f"{node.func.id} does not exist")
    return ast.literal_eval(node)


def register() -> None:
    """Let rl-zoo3 know the algorithms with priorities, as ``prioritized_sac`` and so on."""
    tables: Any = hyperparams_opt.HYPERPARAMS_SAMPLER, hyperparams_opt.HYPERPARAMS_CONVERTER
    for kind in (getattr(module, name) for module in (sb3, sb3_contrib) for name in module.__all__):
        if kind.__name__.startswith("Prioritized"):
            base_name = kind.__name__.removeprefix("Prioritized").lower()
            for module in (utils, train, exp_manager, enjoy):
                module.ALGOS[PREFIX + base_name] = kind
            for table in tables:
                if base_name in table:
                    table[PREFIX + base_name] = table[base_name]


class Manager(exp_manager.ExperimentManager):
    """An experiment whose algorithm has a `ReplayLabBuffer`.

    Args:
        options: Arguments of the buffer, which take the place of those in the file of hyperparameters; text.
        args: As for rl-zoo3's own.
        algo: As for rl-zoo3's own.
        more: As for rl-zoo3's own.
        config: As for rl-zoo3's own; None: its file for the algorithm.
        named: As for rl-zoo3's own.
    """

    def __init__(
        self, options: dict[str, str], args: Any, algo: str, *more: Any, config: str | None = None, **named: Any
    ) -> None:
        if not issubclass(utils.ALGOS[algo], OffPolicyAlgorithm):
            raise ConfigError(f"`--algo` must be an algorithm with a replay buffer, but got {algo}; use rl_zoo3 itself")
        files = Path(exp_manager.__file__).parent / "hyperparams"
        file = config or str(files / f"{algo.removeprefix(PREFIX)}.yml")
        super().__init__(args, algo, *more, config=file, **named)  # type: ignore[misc] # not among the others
        self._replay = options

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the hyperparameters, and those that are saved, in which options of the replay are text."""
        hyperparameters, saved = super().read_hyperparameters()
        buffer_options = hyperparameters.get("replay_buffer_kwargs", {})
        options = {
            **(configured(buffer_options) if isinstance(buffer_options, str) else buffer_options),
            **self._replay,
        }
        if "HerReplayBuffer" in str(hyperparameters.pop("replay_buffer_class", "")):
            options = {"n_sampled_goal": 4, "compute_terminated": "stored"} | options
        saved.pop("replay_buffer_class", None)
        hyperparameters["replay_buffer_kwargs"] = saved["replay_buffer_kwargs"] = options
        return hyperparameters, saved

    def _preprocess_hyperparams(self, hyperparams: dict[str, Any]) -> Any:
        options = hyperparams["replay_buffer_kwargs"]
        processed, *rest = super()._preprocess_hyperparams(hyperparams)
        read = {
            name: configured(value) if name in self._replay or _names(value) else value
            for name, value in options.items()
        }
        processed |= {"replay_buffer_class": ReplayLabBuffer, "replay_buffer_kwargs": read}
        return processed, *rest


def _names(value: Any) -> bool:
    """Whether a value is text that constructs a sampler, schedule or storage."""
    return isinstance(value, str) and value.partition("(")[0] in KINDS


def main(argv: Sequence[str] | None = None) -> None:
    """Run an experiment, or show an agent: the command line.

    Raises:
        ConfigError: An option of the replay is wrong.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    register()
    show = arguments[:1] == ["enjoy"]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--replay", nargs="+", default=[], metavar="NAME=VALUE")
    parsed, zoo_arguments = parser.parse_known_args(arguments[1:] if show else arguments)
    for assignment in parsed.replay:
        if "=" not in assignment:
            raise ConfigError(f"`--replay` takes NAME=VALUE, such as sampler=Recency(), but got {assignment!r}")
    options = dict(assignment.split("=", 1) for assignment in parsed.replay)
    if {"-h", "--help"} & {*zoo_arguments}:
        print(__doc__)
    runner: Any = train
    before = sys.argv, runner.ExperimentManager
    sys.argv = ["replaylab.integrations.zoo", *zoo_arguments]
    runner.ExperimentManager = partial(Manager, options)
    try:
        (enjoy.enjoy if show else runner.train)()
    finally:
        sys.argv, runner.ExperimentManager = before


if __name__ == "__main__":
    main()
