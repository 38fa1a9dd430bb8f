"""The command line: ``replaylab study``, ``train``, ``watch``, ``cluster``.

Exit codes: 0 success; 1 a run failed, the others are stored; 2 invalid input, or results cannot be read or written; 130
interrupted; 143 terminated.
Heavy libraries are imported inside the commands, so that ``--help`` and error messages appear at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, Any, Union, get_args

from replaylab import __version__
from replaylab.arguments import did_you_mean
from replaylab.commands.catalog import StudyList, StudyNew, StudyShow
from replaylab.commands.cluster import ClusterCommand
from replaylab.commands.places import with_local_paths
from replaylab.commands.study import StudyReport, StudyRun
from replaylab.commands.train_command import TrainCommand
from replaylab.commands.watch import WatchCommand
from replaylab.errors import ReplayError

try:
    import tyro
    from tyro.conf import OmitSubcommandPrefixes, subcommand
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec
except ModuleNotFoundError:
    _HAS_LAB = False
else:
    _HAS_LAB = True

_NO_LAB = 'the command line needs the lab extra, which is not installed. Run: pip install "replaylab[lab]"'
_NOBODY_READS = 141
"""The shell's exit code for a program ended by SIGPIPE."""

_STUDY = """Compare replay strategies: write a study file, run it, write its report, list and show the shipped ones.

Example: replaylab study run quick"""

_OF_STUDY = {
    "run": StudyRun,
    "report": StudyReport,
    "new": StudyNew,
    "list": StudyList,
    "show": StudyShow,
}
"""Commands after ``replaylab study``."""

_COMMANDS = {"train": TrainCommand, "watch": WatchCommand, "cluster": ClusterCommand}
"""Commands besides ``study``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``arguments`` are those of the process by default."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--version"]:
        print(f"replaylab {__version__}")
        return 0
    if message := _misspelt(words) if _HAS_LAB else _NO_LAB:
        print(f"replaylab: {message}", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # letters that the terminal cannot show are escaped, and raise nothing
            stream.reconfigure(errors="backslashreplace")
    if str(Path.cwd()) not in sys.path:  # for custom samplers and environments; installed programs do not look here
        sys.path.append(str(Path.cwd()))
    try:
        try:
            return _run(_parsed(words))
        finally:  # what waits in the buffer may have no reader, also after `--help`, which exits
            sys.stdout.flush()
    except KeyboardInterrupt:  # before the command began
        print("replaylab: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # nobody reads any more: what is not yet flushed is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS


def _parsed(words: Sequence[str]) -> Callable[[], int]:
    """Return the command of the arguments; `--help` and invalid arguments exit the process."""
    study: Any = Union[tuple(Annotated[kind, subcommand(name)] for name, kind in _OF_STUDY.items())]  # noqa: UP007
    commands = (Annotated[kind, subcommand(name)] for name, kind in _COMMANDS.items())
    all_commands: Any = Union[(Annotated[study, subcommand("study", description=_STUDY)], *commands)]
    command: Callable[[], int] = tyro.cli(
        all_commands,
        prog="replaylab",
        description="The laboratory of experience replay: which replay strategy should you use?\n\n"
        "Example: replaylab study run quick\n\n"
        "replaylab --version prints the version.",
        args=list(words),
        config=(OmitSubcommandPrefixes,),
        registry=_numbers(),
    )
    return command


def _misspelt(words: Sequence[str]) -> str:
    """Return the message for words that begin with no command; "" where they begin with one, or with an option."""
    before = "replaylab"
    for word, names in zip(words, (["study", *_COMMANDS], list(_OF_STUDY)), strict=False):
        if word.startswith("-"):
            return ""
        if word not in names:
            return f"`{before}` has no command `{word}`{did_you_mean(word, names)} Commands: {', '.join(names)}."
        if word != "study":
            return ""
        before = "replaylab study"
    return ""


def _numbers() -> Any:
    """Return tyro's rules with our own for numbers, whose error messages say what a number must be."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def number(info: Any) -> Any:
        kinds = {kind for kind in get_args(info.type) or (info.type,) if kind is not type(None)}
        if kinds not in ({int}, {float}):
            return None
        (kind,), optional = kinds, type(None) in get_args(info.type)
        rule = ("a whole number" if kind is int else "a number") + (", or None" if optional else "")

        def parsed(texts: list[str]) -> int | float | None:
            if optional and texts == ["None"]:
                return None
            try:
                return kind(texts[0])  # type: ignore[no-any-return]
            except ValueError:
                raise ValueError(f"must be {rule}, but got {texts[0]!r}") from None

        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=f"{kind.__name__.upper()}{'|None' if optional else ''}",
            instance_from_str=parsed,
            is_instance=lambda value: type(value) in (kind, int) or (optional and value is None),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def _run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; known errors are printed as a sentence, other exceptions are raised."""
    sigterm = _Sigterm()
    try:
        with sigterm:
            return with_local_paths(command)()
    except BrokenPipeError:
        raise  # `main` handles it
    except (ReplayError, OSError, MemoryError) as error:
        print(f"replaylab: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        continues = isinstance(command, StudyRun)
        goes_on = "the same command continues, from what was finished and the last checkpoints" if continues else ""
        if isinstance(command, TrainCommand) and (command.resume or command.save):
            goes_on = f"replaylab train --resume {command.resume or command.save} continues from the last checkpoint"
        how = "terminated" if sigterm.received else "interrupted"
        print(f"replaylab: {'; '.join(filter(None, [how, str(interrupt) or goes_on]))}.", file=sys.stderr)
        return 143 if sigterm.received else 130


class _Sigterm:
    """Context manager in which SIGTERM ends a command as Ctrl-C does.

    Attributes:
        received: Whether a SIGTERM was received.
    """

    def __init__(self) -> None:
        self.received, self._process = False, os.getpid()
        self._before: Any = None

    def __enter__(self) -> _Sigterm:
        if current_thread() is main_thread():
            self._before = signal.signal(signal.SIGTERM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _interrupt(self, *_: object) -> None:
        if os.getpid() != self._process:  # a fork, such as a subprocess of a vector environment
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self.received = True
        raise KeyboardInterrupt


def _sentence(error: Exception) -> str:
    if isinstance(error, ReplayError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}the system reports: {error.strerror or error}."
    return f"this machine has too little memory for this{f' ({error})' if str(error) else ''}."
