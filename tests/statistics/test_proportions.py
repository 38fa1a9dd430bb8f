"""Wilson's interval against SciPy's."""

import numpy as np
import pytest
from scipy import stats

from replaylab import statistics as st


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_is_scipys(level):
    successes, trials = np.meshgrid(np.arange(0, 11), [10, 37])
    interval = st.wilson_interval(successes, trials, level=level)
    for place in np.ndindex(successes.shape):
        expected = stats.binomtest(int(successes[place]), int(trials[place])).proportion_ci(level, method="wilson")
        assert (interval.low[place], interval.high[place]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_broken_count_is_refused():
    with pytest.raises(ValueError, match=r"^0 <= `successes` <= `trials` and .* must hold, but got 3\.0 of 2\.0\.$"):
        st.wilson_interval(3, 2)
