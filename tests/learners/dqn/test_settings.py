import re

import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN, Adam, RMSprop
from replaylab.replay import Linear

BAD = [
    (
        {"hidden": (128, 0)},
        "or, for one layer, (64,), but got (128, 0)",
    ),
    ({"epsilon": Linear(1.0, -0.1)}, "`epsilon` of DQN must be a chance, in [0, 1], but got Linear("),
    ({"max_grad_norm": 1e-46}, "the smallest normal float32, but got 1e-46"),
    ({"target_range": (1.0, 1.0)}, "`target_range` of DQN must be a least and a larger most, or None, but got (1.0, 1"),
    ({"dueling": True, "hidden": ()}, "`dueling` of DQN must be False where `hidden` is empty, but got True"),
    ({"dueling": True, "module": print}, "`dueling` of DQN must be False where `module` is given, but got True"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(options) for options, _ in BAD])
def test_an_option_out_of_its_range_is_reported(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        DQN(**options)


@pytest.mark.parametrize("kind", [Adam, RMSprop])
def test_an_epsilon_that_would_be_0_in_the_networks_numbers(kind):
    with pytest.raises(
        ConfigError, match=f"`epsilon` of {kind.__name__} must be positive, finite and at least 1.2e-38"
    ):
        kind(epsilon=1e-46)
