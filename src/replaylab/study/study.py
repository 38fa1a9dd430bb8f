"""A study with the folder its results live in: run it, read it, report it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from replaylab.arguments import NOT_NEGATIVE, check, flag, instance, optional, place, takes, text
from replaylab.study import execution
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import Curve, Difference, Level
from replaylab.study.analysis.contrast_results import ContrastResults, evaluate_contrasts
from replaylab.study.catalog import find
from replaylab.study.execution import Estimate, Executor, Reporter, RunSummary
from replaylab.study.notebook import html_of
from replaylab.study.plan import Chunk
from replaylab.study.results.opening import Results, check_recorded, metric_frame, results_in, rows_in, spec_in
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb
    import pandas

FOLDER = optional(place("a folder"))
EVERY = optional(NOT_NEGATIVE)
REPORTER = optional(instance(Reporter, "a reporter, with its methods"))


@dataclass(frozen=True)
class Study:
    """A validated study and its folder.

    The folder holds:

    * ``study.json``: every setting, defaults included; infinities as ``Infinity``.
    * ``study.toml``: the study file as it was at the last run.
    * ``machine.json``: versions and hardware of each machine.
    * ``runs/``: one Parquet file for each chunk; ``timing/``: seconds, speed and machine of each.
    * ``failures/``: tracebacks of the last run.
    * ``checkpoints/``, ``tapes/``: chunks in progress, and draws that strategies of type ``tape`` wait for.
    * ``damaged/``: files whose checksum failed.
    * ``report.html``: the report; above 600 kB, figures of thousands of runs are in ``figures/``.
    * ``reports.json``: the seeds it was reported with.
    * ``figures/``, ``tables/``: each figure as SVG and PNG with its numbers as CSV, each table as CSV.

    Example:
        >>> study = Study.from_toml("quick")
        >>> study.spec.baseline
        'uniform'
    """

    spec: Spec
    folder: Path
    toml: str = field(default="", repr=False, compare=False)
    """Text of the study file; empty if the study was not read from one."""

    def __post_init__(self) -> None:
        check(self, spec=instance(Spec, "a Spec"), folder=place("a folder"), toml=text)
        object.__setattr__(self, "folder", Path(self.folder))

    @classmethod
    @takes(study=place("a study file, or a shipped study's name"), folder=FOLDER)
    def from_toml(cls, study: str | Path, folder: str | Path | None = None) -> Self:
        """Read a study file, or a shipped study by name.

        Args:
            study: the path of a TOML file, or a shipped study's name.
            folder: where the results go; by default ``results/<name>``.

        Raises:
            SpecError: there is no such study, or the file breaks a rule.
        """
        file = find(study)
        spec = Spec.from_toml(file)
        toml = file.read_text(encoding="utf-8")
        return cls(spec, Path("results", spec.name) if folder is None else Path(folder), toml)

    @classmethod
    @takes(folder=place("a folder"))
    def from_folder(cls, folder: str | Path) -> Self:
        """Open the results of an earlier run; needs neither the study file nor the training code.

        A folder with only ``rows.parquet``, the published rows of a finished study, can be reported but not run.

        Raises:
            SpecError: the folder holds no study.
            StorageError: its published rows are damaged.
        """
        file = Path(folder, "study.toml")
        toml = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        return cls(spec_in(Path(folder)), Path(folder), toml)

    @cached_property  # of published rows it knows the plan, which takes long for hundreds of chunks
    def _results(self) -> Results:
        """The reader of the folder's results."""
        return results_in(self.folder, self.spec)

    @property
    def chunks(self) -> list[Chunk]:
        """Every chunk of the study, there or not; those that are there are kept, however they were chunked."""
        return self._results.chunks

    @property
    def present(self) -> list[Chunk]:
        """The chunks whose rows are there."""
        return self._results.present

    def file_of(self, chunk: Chunk) -> Path:
        """Return where the chunk's rows are, or will be."""
        return self._results.file_of(chunk)

    @takes(show=optional(flag), reporter=REPORTER, checkpoint_every=EVERY)
    def run(
        self,
        *,
        workers: int | None = None,
        executor: Executor | None = None,
        show: bool | None = None,
        reporter: Reporter | None = None,
        checkpoint_every: float | None = 300.0,
    ) -> RunSummary:
        """Run what is missing and return what was done; safe to kill at any moment and call again.

        Args:
            workers: processes, one thread each; by default one for each core that this process may use. It changes
                only the time.
            executor: the executor that trains chunks, instead of ``workers`` local processes: for example `InProcess`
                under a debugger. It changes no number, and is closed at the end.
            show: whether to show the progress: live on a terminal, as plain lines elsewhere; None: in notebooks only.
            reporter: receives the progress, in place of `show`.
            checkpoint_every: seconds between two checkpoints of a chunk in training, from which a killed one goes
                on, where its environment can; None: none are kept. It changes no number.

        Raises:
            ConfigError: ``workers`` is below 1, or given with ``executor``, or another run is at work in the folder.
            SpecError: the folder holds another study, or some part of the study cannot be run, by the check before
                training; the message names all of them, and nothing is trained.
            StorageError: the folder cannot be written, or cannot any more; what is there stays.
            KeyboardInterrupt: Ctrl-C, after local workers have written checkpoints; the message counts what is there.
        """
        where = execution.chosen_executor(workers, executor)
        return execution.run_study(self.spec, self.folder, where, reporter, show, checkpoint_every, self.toml)

    @takes(seconds=NOT_NEGATIVE)
    def estimate(
        self,
        *,
        workers: int | None = None,
        executor: Executor | None = None,
        seconds: float = execution.CALIBRATION_SECONDS,
    ) -> Estimate:
        """Return what `run` would do and take, without writing anything: the grid, the time, the disk.

        Every kind of cell is trained for a share of ``seconds``, in as many workers as the study would use.

        Args:
            workers: as in `run`.
            executor: as in `run`.
            seconds: how long to train; how long starting the workers takes comes on top.

        Raises:
            ConfigError: ``workers`` is below 1, or given with ``executor``.
            StorageError: results that are there are damaged.
        """
        where = execution.chosen_executor(workers, executor)
        return execution.estimate_study(self.spec, self.folder, where, seconds)

    def results(self) -> duckdb.DuckDBPyRelation:
        """Return all rows as a DuckDB relation: ``.arrow()``, ``.df()``, ``.fetchnumpy()``, or query it.

        Columns: environment, learner, strategy, seed, step, metric, value (`replaylab.study.results.store.SCHEMA`).

        Raises:
            SpecError: nothing has been run yet.
        """
        return rows_in(self.folder, self.spec)

    def versions(self) -> list[dict[str, str]]:
        """Return the library versions that the results were made with, one or more sets by library.

        Raises:
            StorageError: a file is damaged.
        """
        return self._results.versions()

    @takes(sql=text)
    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return what an SQL query finds in the table ``results``, all rows of the study.

        Example: ``study.query("select strategy, max(value) as best from results group by all").fetchall()``

        Raises:
            SpecError: nothing has been run yet.
        """
        return cast("duckdb.DuckDBPyRelation", self.results().query("results", sql))

    @takes(metric=optional(text))
    def frame(self, metric: str | None = None) -> pandas.DataFrame:
        """Return all rows, or those of one metric, as a pandas DataFrame; columns as in `results`.

        Raises:
            ConfigError: the metric was not recorded, and is not one that the library may record.
            MissingExtraError: pandas is not installed.
            SpecError: nothing has been run yet.
        """
        return metric_frame(self.results(), metric)

    @takes(metric=text)
    def curves(self, metric: str = "eval/mean_reward") -> list[Curve]:
        """Return a metric of every run over time, one curve object for each environment, learner and strategy.

        Raises:
            ConfigError: the metric was not recorded, and is not one that the library may record.
            SpecError: nothing has been run yet.
        """
        rows = self.results()
        curves = comparisons.curves_of(rows, self.spec, metric)
        if not curves:
            check_recorded(rows, metric)
        return curves

    @takes(metric=text)
    def levels(self, metric: str = "eval/mean_reward") -> list[Level]:
        """Return the level of each strategy, with intervals: of the return, the numbers of the report's first table.

        Args:
            metric: any that the runs recorded; runs without a number of it are left out.

        Raises:
            ConfigError: the metric was not recorded, and is not one that the library may record.
            SpecError: nothing has been run yet.
        """
        return comparisons.levels(self.curves(metric))

    @takes(metric=text)
    def differences(self, metric: str = "eval/mean_reward") -> list[Difference]:
        """Return each strategy's difference from the baseline, paired over seeds, its p-value corrected by max-T.

        Differences of the return are also tested against the study file's margins of `equivalence`.

        Args:
            metric: any that the runs recorded, its own family for the correction; empty where nothing did.

        Raises:
            ConfigError: the metric was not recorded, and is not one that the library may record.
            SpecError: nothing has been run yet.
        """
        return comparisons.differences_of(self.curves(metric), self.spec, metric)

    def answers(self) -> list[str]:
        """Return the answer as a sentence, then a line for each contrast, or without any for each comparison.

        Raises:
            SpecError: nothing has been run yet.
        """
        from replaylab.study.report import headline

        return headline.answers(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    @takes(out=FOLDER, figure_files=flag)
    def report(self, out: str | Path | None = None, *, figure_files: bool = True) -> Path:
        """Write ``report.html`` with its figures and tables, and return its path.

        Args:
            out: the folder to write to, made where it is missing; by default the study's own. With another one
                the study's folder is only read.
            figure_files: whether to write each figure as SVG, PNG and CSV beside the page, which has them all anyway.

        Raises:
            SpecError: nothing has been run yet.
        """
        from replaylab.study.report.report import write_report

        return write_report(self, self.folder if out is None else Path(out), figure_files=figure_files)

    def contrasts(self) -> ContrastResults:
        """Return the results of the study file's contrasts: estimates, intervals, p-values, verdicts, warnings.

        Raises:
            SpecError: nothing has been run yet.
        """
        rows = self.results()
        return evaluate_contrasts(self.spec, lambda metric: comparisons.curves_of(rows, self.spec, metric))

    def record(self, name: str) -> dict[str, Any]:
        """Return one of the folder's JSON records, ``machine`` for instance; empty where there is none.

        Raises:
            StorageError: it is damaged.
        """
        return self._results.record(name)
