"""Write a finished study's `rows.parquet`, the small file that is tracked beside its report.

    python docs/publish_results.py results/decorrelation docs/results/decorrelation

A study that was run in parts, each in its own folder, is published as one: name all folders, the target last. The
target may be one of them, so that a part is added to what is published.

For each run it holds what the tables of the report need, in full precision: the complete curve of the evaluation
return, and of each metric that a contrast or `metrics` asks for; the run's mean of every other measure in the report;
the last number of updates and of replayed transitions; and losses that were not finite.

The settings are those of the file `study.toml` in the target folder, or else of the shipped study with the folder's
name. If keys of study files are renamed, write the rows again: name the folder of the published rows twice.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from replaylab.learners.training.metrics_recorder import OF_DIVERGENCE
from replaylab.study import Study
from replaylab.study.analysis.comparisons import RETURN, Curve, curves_of
from replaylab.study.report.sections.replay_measures import EFFECTIVE_PARTS, EFFECTIVE_SIZE, measures_of_runs
from replaylab.study.results.published_rows import write_published_rows
from replaylab.study.results.store import SCHEMA
from replaylab.study.spec.contrasts import resolve_contrasts

LAST = ("train/updates", "replay/transitions_replayed")
"""Metrics of which a report has only the last value of each run."""

RECORDS = ("machine", "reports")


def complete_metrics(study: Study) -> list[str]:
    """Return the metrics whose complete curves the report's tables need."""
    asked = [
        RETURN,
        *(contrast.metric for contrast in resolve_contrasts(study.spec) if contrast.of is None),
        *study.spec.metrics,
    ]
    return list(dict.fromkeys([*asked, *(EFFECTIVE_PARTS if EFFECTIVE_SIZE in asked else ())]))


def one_row_each(curve: Curve, metric: str, values) -> pa.Table:
    """Return one row for each run of a curve, at the curve's last step."""
    runs = len(curve.seeds)
    labels = ([label] * runs for label in (*curve.cell, curve.strategy))
    columns = [*labels, curve.seeds, [int(curve.steps[-1])] * runs, [metric] * runs, values]
    return pa.table(columns, names=SCHEMA.names).cast(SCHEMA)


def selected_rows(study: Study) -> pa.Table:
    """Return the rows to publish."""
    complete = complete_metrics(study)
    in_complete = f"metric IN {tuple(complete)}" if len(complete) > 1 else f"metric = '{complete[0]}'"
    lost = " OR ".join(f"metric = '{name}'" for name in OF_DIVERGENCE if name not in complete)
    rows = study.results()
    wanted = rows.filter(f"{in_complete} OR (({lost}) AND NOT isfinite(value))")
    parts = [wanted.to_arrow_table().select(SCHEMA.names).cast(SCHEMA)]

    def curves(metric: str) -> list[Curve]:
        return curves_of(rows, study.spec, metric)

    for metric in LAST:
        if metric not in complete:
            parts += [one_row_each(curve, metric, curve.values[:, -1]) for curve in curves(metric)]
    for metric, curve, values in measures_of_runs(curves):
        if metric not in complete:
            parts.append(one_row_each(curve, metric, values))
    return pa.concat_tables(parts)


def publish(parts: Sequence[Study], folder: Path) -> Path:
    """Write the rows of a study's results, which may lie in several folders, into one and return the file's path."""
    chunks, rows, versions, records = {}, [], {}, {}
    for part in parts:
        added = [chunk for chunk in part.present if chunk.id not in chunks]
        chunks |= {chunk.id: chunk for chunk in added}
        if added:
            rows.append(selected_rows(part))
        versions |= {tuple(libraries.items()): dict(libraries) for libraries in part.versions()}
        names = [*RECORDS, *(f"timing/{chunk.id}" for chunk in added)]
        records = {name: record for name in names if (record := part.record(name))} | records
    return write_published_rows(
        folder, parts[0].spec, [*chunks.values()], pa.concat_tables(rows), [*versions.values()], records
    )


def main(*sources: str, target: str) -> None:
    """Publish the results in folders into another, which has the study file or the name of a shipped study."""
    file = Path(target, "study.toml")
    parts = [Study.from_toml(file if file.is_file() else Path(target).name, source) for source in sources]
    published = Study.from_folder(publish(parts, Path(target)).parent)
    runs = sum(len(chunk.seeds) for chunk in published.present)
    size = Path(target, "rows.parquet").stat().st_size
    print(f"{target}: {runs:,} of {published.spec.runs:,} runs, {size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:-1], target=sys.argv[-1])
