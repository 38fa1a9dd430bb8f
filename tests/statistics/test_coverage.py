"""The intervals hold the true value as often as docs/explanation/statistics-appendix.md says."""

import pytest

from tests.statistics.coverage import DIFFERENCES, LEVELS, coverage


@pytest.mark.slow
@pytest.mark.parametrize("runs", [10, 30])
@pytest.mark.parametrize("case", [*((distribution, None) for distribution in LEVELS), *DIFFERENCES], ids=str)
def test_coverage(case, runs):
    """2,000 studies: a share near .95 has standard error .0049; 0.02 of true miss and 5 errors are allowed."""
    calibrated, _ = coverage(*case, runs=runs, studies=2_000)
    assert abs(calibrated - 0.95) < 0.02 + 5 * 0.0049


@pytest.mark.parametrize("case", [(["normal"], None), (["ceiling"], ["half lost"])], ids=str)
def test_coverage_is_better_than_the_percentile_intervals(case):
    """600 studies of 10 seeds; standard error .009. The plain interval holds about 92 %."""
    calibrated, plain = coverage(*case, runs=10, studies=600)
    assert abs(calibrated - 0.95) < 0.045
    assert plain + 0.01 < calibrated
