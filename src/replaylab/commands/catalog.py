"""Commands about study files: list the shipped ones, and show what one compares."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from replaylab.study.spec.study_file import Spec

with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class StudyList:
    """List the studies that ship with replaylab: what each asks, and how long it takes.

    Example: replaylab study list
    """

    def __call__(self) -> int:
        """Print the table and return the exit code."""
        from rich.console import Console
        from rich.table import Table

        from replaylab.study.catalog import shipped
        from replaylab.study.spec.study_file import Spec

        table = Table("name", "question", "environments", "runs", "time here", box=None, pad_edge=False)
        table.columns[0].no_wrap = table.columns[4].no_wrap = True
        table.columns[2].overflow = "fold"
        table.columns[3].justify = "right"
        for name, file in shipped().items():
            spec = Spec.from_toml(file)
            environments = ", ".join(environment.removeprefix("replaylab/") for environment in spec.environments)
            table.add_row(name, spec.title, environments, f"{spec.runs:,}", time_here(spec))
        Console(markup=False, highlight=False).print(table)
        print("\nDetails: replaylab study show NAME. Measured times: replaylab study run NAME --dry-run.")
        return 0


@dataclass(frozen=True)
class StudyShow:
    """Show what a study compares: environments, learners, strategies, budget, contrasts and files.

    Example: replaylab study show quick
    """

    study: Annotated[Positional[str], arg(metavar="STUDY")]
    """A shipped study's name (see `replaylab study list`), or the path of a TOML file."""

    def __call__(self) -> int:
        """Print the study and return the exit code."""
        from replaylab.number_format import counted
        from replaylab.study.catalog import find
        from replaylab.study.report.methods import learner_settings, strategy_settings
        from replaylab.study.report.sentences import budget_of
        from replaylab.study.spec.contrasts import resolve_contrasts
        from replaylab.study.spec.study_file import Spec

        file = find(self.study)
        spec = Spec.from_toml(file)
        lines = [f"{spec.name}: {spec.title}", *([spec.question] if spec.question else []), ""]
        lines += [f"file: {file}", f"results: results/{spec.name}", f"environments: {', '.join(spec.environments)}"]
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
        print("\n".join(lines))
        return 0


def _named(name: str, title: str) -> str:
    return name if name == title else f"{name} ({title})"


def time_here(spec: Spec) -> str:
    """Return about how long a study takes on this machine's cores; a dash if the study file has no time."""
    from replaylab.study.plan.chunks import plan
    from replaylab.study.results.provenance import cores

    if spec.core_minutes is None:
        return "–"
    minutes = spec.core_minutes / min(cores(), len(plan(spec)))
    return f"about {minutes / 60:.0f} h" if minutes >= 90 else f"about {max(minutes, 1):.0f} min"
