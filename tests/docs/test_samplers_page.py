"""The entries of samplers name what their classes need."""

import re

import pytest

from replaylab import replay
from replaylab.replay import Batch, CustomSampler, MixedReplay, Mixture, ReplayBuffer, Sampler, Schedule, TopScores
from tests.docs.test_pages import DOCS, run

TEXT = (DOCS / "reference/samplers.md").read_text()
ENTRIES = dict(re.findall(r"^### `(\w+)\(.*?\)`$\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL))
KINDS = [kind for kind in (getattr(replay, name) for name in replay.__all__) if isinstance(kind, type)]
SAMPLERS = [kind for kind in KINDS if issubclass(kind, Sampler) and kind not in (Sampler, CustomSampler, TopScores)]


def test_every_sampler_has_its_entry():
    assert set(ENTRIES) == {kind.__name__ for kind in SAMPLERS}


@pytest.mark.parametrize("kind", [kind for kind in SAMPLERS if kind is not Mixture], ids=lambda kind: kind.__name__)
def test_the_entry_names_what_it_needs(kind):
    assert kind.__name__ in ENTRIES, "docs/reference/samplers.md has no entry of it"
    stated = re.search(r"^\* \*\*Needs:\*\* (.*)\.$", ENTRIES[kind.__name__], re.MULTILINE)
    needs = stated[1].split(", ") if stated else []
    fields = getattr(kind, "__dataclass_fields__", {}).values()
    expected = {
        "no closed form": bool(kind.no_closed_form),
        "`batch_size`": kind.distribution_needs_batch_size and not kind.no_closed_form,
        "`progress`": kind.distribution_needs_progress,
        "`progress` for weights": any(isinstance(field.default, Schedule) for field in fields)
        and not kind.distribution_needs_progress,
        "feedback": kind.wants_feedback,
    }
    assert needs == [need for need, holds in expected.items() if holds]


NAMES = run("samplers.md", TEXT)
for left in [name for name, value in NAMES.items() if isinstance(value, (ReplayBuffer, MixedReplay, Batch))]:
    del NAMES[left]  # the class below keeps the namespace, and it them, until after the core is gone


class TestCurious(NAMES["TestCurious"]):
    """The page's own sampler passes the suite the page recommends."""

    batches = 100
