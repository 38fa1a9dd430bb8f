"""Commands about study files: write a new one, list the shipped ones, and show what one compares."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from replaylab.errors import SpecError

if TYPE_CHECKING:
    from replaylab.study import Study
    from replaylab.study.spec.spec import Spec

with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class StudyList:
    """List the studies that ship with replaylab: what each asks, and how long it takes.

    Example: replaylab study list

    Example: replaylab study list --published
    """

    published: bool = False
    """List published statements instead: each with its source, and the shipped study or the example that tests it."""

    def __call__(self) -> int:
        """Print the table and return the exit code."""
        from rich.console import Console
        from rich.table import Table

        from replaylab.study.catalog import shipped
        from replaylab.study.spec.spec import Spec

        specs = {name: Spec.from_toml(file) for name, file in shipped().items()}
        if self.published:
            table = Table("claim", "source", "study or example", "time here", box=None, pad_edge=False)
            table.columns[2].no_wrap = table.columns[3].no_wrap = True
            for row in _published_statements(specs):
                table.add_row(*row)
            hint = "Run them: replaylab study run STUDY, or python -m examples.published.EXAMPLE."
        else:
            table = Table("name", "question", "environments", "runs", "time here", box=None, pad_edge=False)
            table.columns[0].no_wrap = table.columns[4].no_wrap = True
            table.columns[2].overflow = "fold"
            table.columns[3].justify = "right"
            for name, spec in specs.items():
                environments = ", ".join(environment.removeprefix("replaylab/") for environment in spec.environments)
                table.add_row(name, spec.title, environments, f"{spec.runs:,}", time_here(spec))
            hint = "Details: replaylab study show NAME. Measured times: replaylab study run NAME --dry-run."
        Console(markup=False, highlight=False).print(table)
        print(f"\n{hint}")
        return 0


@dataclass(frozen=True)
class StudyNew:
    """Write NAME.toml, a small study with a comment on each key, to start your own study from.

    Example: replaylab study new mine
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """The study's name. The file is written into the current folder; it must not exist yet."""

    def __call__(self) -> int:
        """Write the file and return the exit code."""
        from replaylab.study.catalog import write_new

        file = write_new(self.name)
        print(f"{file}: a study to start from. Change it, then: replaylab study run {file}")
        return 0


@dataclass(frozen=True)
class StudyShow:
    """Show what a study compares: environments, learners, strategies, budget, contrasts and files.

    Example: replaylab study show quick

    Example: replaylab study show quick --toml > mine.toml
    """

    study: Annotated[Positional[str], arg(metavar="STUDY")]
    """A shipped study's name (see `replaylab study list`), the path of a TOML file, or a results folder."""

    toml: bool = False
    """Print the study file instead, to copy it."""

    def __call__(self) -> int:
        """Print the study and return the exit code."""
        from replaylab.study import Study
        from replaylab.study.catalog import find, shipped

        if Path(self.study).is_dir() and self.study not in shipped():
            study, file = Study.from_folder(self.study), Path(self.study, "study.toml")
        else:
            study, file = Study.from_toml(self.study), find(self.study)
        if self.toml and not study.toml:
            raise SpecError(
                f"study show: --toml prints the study's file, but the results in {self.study} have none (study.toml), "
                f"because they were not run from a file"
            )
        print(study.toml if self.toml else _summary(study, file), end="" if self.toml else "\n")
        return 0


def _summary(study: Study, file: Path) -> str:
    """Return the study's environments, learners, strategies, budget, contrasts and results folder, a line each."""
    from replaylab.number_format import counted
    from replaylab.study.report.methods import learner_settings, strategy_settings
    from replaylab.study.report.sentences import budget_of
    from replaylab.study.spec.contrasts import resolve_contrasts

    spec = study.spec
    lines = [f"{spec.name}: {spec.title}", *([spec.question] if spec.question else []), ""]
    lines += [f"file: {file}"] if study.toml else []
    lines += [f"results: {study.folder}", f"environments: {', '.join(spec.environments)}"]
    lines += [
        f"budget: {counted(spec.runs, 'run')} of {budget_of(spec)}, {counted(len(spec.seeds), 'seed')} each",
        f"time here: {time_here(spec)}",
        "strategies:",
        *(f"  {_named(name, spec.title_of(name))}: {strategy_settings(spec, name)}" for name in spec.strategies),
        f"baseline: {spec.title_of(spec.baseline)}",
        "learners:",
        *(f"  {name}: {learner_settings(spec, name)}" for name in spec.learners),
    ]
    if contrasts := resolve_contrasts(spec):
        lines += ["contrasts:"]
        lines += [f"  {asked.name}{' (primary)' if asked.primary else ''}: {asked.versus}" for asked in contrasts]
    return "\n".join(lines)


def _named(name: str, title: str) -> str:
    return name if name == title else f"{name} ({title})"


def _published_statements(specs: Mapping[str, Spec]) -> list[tuple[str, str, str, str]]:
    """Return the claim and the source of each published statement, and the study or example with its time."""
    from replaylab.study.catalog import published_examples

    rows = [
        (contrast.published.says, contrast.published.source, name, time_here(spec))
        for name, spec in specs.items()
        for contrast in spec.contrasts
        if contrast.published is not None
    ]
    rows += [
        (stated["Claim"], stated["Source"], name, _about(float(stated["Minutes"])))
        for name, stated in published_examples().items()
    ]
    return list(dict.fromkeys(rows))


def time_here(spec: Spec) -> str:
    """Return about how long a study takes on this machine's cores; a dash if the study file has no time."""
    from replaylab.study.plan import plan
    from replaylab.study.results.provenance import cores

    if spec.core_minutes is None:
        return "–"
    return _about(spec.core_minutes / min(cores(), len(plan(spec))))


def _about(minutes: float) -> str:
    return f"about {minutes / 60:.0f} h" if minutes >= 90 else f"about {max(minutes, 1):.0f} min"
