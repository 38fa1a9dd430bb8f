"""The table of samplers says what their classes say."""

import re

import pytest

from replaylab import replay
from replaylab.replay import Batch, CustomSampler, MixedReplay, Mixture, ReplayBuffer, Sampler, Schedule, TopScores
from tests.docs.test_pages import DOCS, run

TEXT = (DOCS / "reference/samplers.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| .* \| (.*?) \| (.*?) \| (.*?) \|$", TEXT, re.MULTILINE)}
KINDS = [kind for kind in (getattr(replay, name) for name in replay.__all__) if isinstance(kind, type)]
SAMPLERS = [kind for kind in KINDS if issubclass(kind, Sampler) and kind not in (Sampler, CustomSampler, TopScores)]


def test_every_sampler_has_its_row_and_its_entry():
    assert set(ROWS) == {kind.__name__ for kind in SAMPLERS}
    assert set(re.findall(r"^`(\w+)\(.*\)`\n: ", TEXT, re.MULTILINE)) == set(ROWS)


@pytest.mark.parametrize("kind", [kind for kind in SAMPLERS if kind is not Mixture], ids=lambda kind: kind.__name__)
def test_the_row_is_right(kind):
    assert kind.__name__ in ROWS, "docs/reference/samplers.md has no row of it"
    batch_size, progress, feedback = ROWS[kind.__name__]
    assert (batch_size == "no law") == bool(kind.no_law)
    assert (batch_size == "B") == (kind.law_needs_batch_size and not kind.no_law)
    assert (progress == "law") == kind.law_needs_progress
    assert (feedback == "yes") == kind.wants_feedback
    fields = getattr(kind, "__dataclass_fields__", {}).values()
    scheduled = any(isinstance(field.default, Schedule) for field in fields)
    assert (progress in ("law", "weights")) == scheduled


NAMES = run("samplers.md", TEXT)
for left in [name for name, value in NAMES.items() if isinstance(value, (ReplayBuffer, MixedReplay, Batch))]:
    del NAMES[left]  # the class below keeps the namespace, and it them, until after the core is gone


class TestCurious(NAMES["TestCurious"]):
    """The page's own sampler passes the suite the page recommends."""

    batches = 200
