"""The measures of what was replayed, and the effect sizes, as a report shows them."""

from itertools import product

import numpy as np
import pytest

from replaylab import statistics
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report.sections import effect_sizes, replay_measures
from tests.study.tiny import csv_rows, pretended, sections, write_rows

STEPS = (100, 200, 300)
CHOICE = {"more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}
CONTRASTS = [
    {"name": "choice", **CHOICE},
    {"name": "weights", "weights": {"uniform": 0.5, "prioritized": -0.5}},
    {"name": "gini", "metric": "replay/replay_gini", **CHOICE},
    {"name": "difference", "of": ["choice", "choice"]},
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Every run's batches are of 64 rows; prioritized's gradient varies twice as much as uniform's."""
    tiny = pretended(tmp_path_factory.mktemp("beside"), 30.0, seeds=6, chunk_size=6, contrasts=CONTRASTS)

    def rows_of(chunk):
        rows_written = tiny.results().filter(f"strategy = '{chunk.strategy}'").project("seed, step, metric, value")
        yield from rows_written.fetchall()
        for seed, (i, step) in product(chunk.seeds, enumerate(STEPS)):
            varied = (2.0 if chunk.strategy == "prioritized" else 1.0) * (1 + i)
            yield seed, step, "replay/effective_batch_size", 64 / varied * (1 + i)
            yield seed, step, "replay/gradient_variance", varied
            yield seed, step, "replay/gradient_variance_uniform", 1.0 + i
            yield seed, step, "replay/replay_gini", 0.1 * seed + 0.01 * i

    write_rows(tiny, rows_of)
    with sections("differences", "effect_sizes", "replay_measures"):
        tiny.report()
    return tiny


def test_a_measure_is_the_iqm_over_runs_of_their_means(reported):
    rows = [r for r in csv_rows(reported.folder / "tables" / "measures.csv") if r["metric"] == "replay/replay_gini"]
    assert [(r["strategy"], r["runs"]) for r in rows] == [("uniform", "6"), ("prioritized", "6")]
    assert float(rows[0]["iqm"]) == pytest.approx(0.25 + 0.01)
    each = [
        r
        for r in csv_rows(reported.folder / "figures" / "measures.csv")
        if r["metric"] == "replay/replay_gini" and r["strategy"] == "uniform"
    ]
    assert [float(r["value"]) for r in each] == pytest.approx([0.1 * seed + 0.01 for seed in range(6)])


def test_effective_batch_sizes_are_ratios_of_means():
    def curve(values):
        return Curve("e", "l", "s", np.arange(1), np.array([1, 2]), np.array([values]))

    of_sampler, uniform = curve([1.0, 4.0]), curve([2.0, 2.0])
    sizes = curve([64 * 2.0, 64 * 0.5])
    assert replay_measures._effective(sizes, of_sampler, uniform).tolist() == [64 * 4 / 5]
    assert replay_measures._effective(sizes, curve([0.0, 0.0]), uniform).tolist() == [80.0]


def test_effective_rows_stand_beside_each_contrast_of_returns(reported):
    """Uniform's batches have 64 effective rows, prioritized's 32."""
    rows = csv_rows(reported.folder / "tables" / "contrasts.csv")
    assert [(r["contrast"], r["effective_rows_more"], r["effective_rows_less"]) for r in rows] == [
        ("choice", "32.0", "64.0"),
        ("weights", "64.0", "32.0"),
        ("gini", "", ""),
        ("difference", "", ""),
    ]
    assert ">32.0 vs 64.0</td>" in (reported.folder / "report.html").read_text()


def test_measures_stand_beside_the_returns_with_their_meaning(reported):
    page = (reported.folder / "report.html").read_text()
    assert page.index('id="table-differences"') < page.index("<h2>Replay statistics</h2>")
    assert "<dt>Gini of replay counts</dt><dd>how unevenly stored steps were drawn" in page
    assert "<dt>Duplicates</dt>" not in page
    assert "32 (32 to 32)" in page
    assert page.count('aria-label="Measures beside the return: CartPole-v1: ') == 3
    assert page.count('aria-label="Measures over training: ') == 2


def test_effects_are_those_of_the_statistics(reported):
    curves = comparisons.curves_of(reported.results(), reported.spec, comparisons.RETURN)
    base, other = curves
    final, area = effect_sizes.effects(curves, "uniform")
    pair = comparisons.paired_values(other, base, "final")
    assert (final.strategy, final.measure, final.pairs, area.measure) == ("prioritized", "final", 6, "area")
    assert final.improvement == statistics.probability_of_improvement(*pair)
    assert final.improvement.estimate == 1.0
    assert final.standardised.estimate == pytest.approx(np.subtract(*pair).mean() / np.subtract(*pair).std(ddof=1))
    row = csv_rows(reported.folder / "tables" / "effects.csv")[0]
    assert float(row["standardised"]) == final.standardised.estimate
