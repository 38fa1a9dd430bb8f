"""The entries of samplers name what their classes need, on the page of each package."""

import re

import pytest

from replaylab import replay, research
from replaylab.replay import (
    Aged,
    Batch,
    CustomSampler,
    FreshFirst,
    MixedReplay,
    Mixture,
    ReplayBuffer,
    Sampler,
    Schedule,
    TopScores,
)
from tests.docs.test_pages import DOCS, run

TEXT = (DOCS / "reference/samplers.md").read_text()
PAGES = {replay: TEXT, research: (DOCS / "reference/research.md").read_text()}


def entries(page):
    return dict(re.findall(r"^### `(\w+)\(.*?\)`$\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))


def samplers(package):
    kinds = [kind for kind in (getattr(package, name) for name in package.__all__) if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, Sampler) and kind not in (Sampler, CustomSampler, TopScores)]


ENTRIES = {name: entry for page in PAGES.values() for name, entry in entries(page).items()}
MADE_OF_OTHERS = (Mixture, Aged, FreshFirst)
"""They need what these need."""
SAMPLERS = [kind for package in PAGES for kind in samplers(package)]
OF_THEMSELVES = [kind for kind in SAMPLERS if not issubclass(kind, MADE_OF_OTHERS)]


@pytest.mark.parametrize("package", PAGES, ids=lambda package: package.__name__)
def test_each_page_has_the_samplers_of_its_package(package):
    assert set(entries(PAGES[package])) == {kind.__name__ for kind in samplers(package)}


def test_the_number_of_samplers_on_the_first_page():
    assert f"[{len(samplers(replay))} samplers and your own]" in (DOCS.parent / "README.md").read_text()


@pytest.mark.parametrize("kind", OF_THEMSELVES, ids=lambda kind: kind.__name__)
def test_the_entry_names_what_it_needs(kind):
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
