"""Every sampler's docstring holds its formula, its defaults and its source."""

import dataclasses
import inspect
import re

import pytest

from replaylab.replay import Combined, CustomSampler, Linear, Prioritized, Sampler
from replaylab.replay.data import schedules
from replaylab.replay.samplers.custom_sampler import TopScores
from tests.replay.guarantees.test_conformance import kinds

SAMPLERS = sorted(kinds() - {CustomSampler, TopScores}, key=lambda kind: kind.__name__)
KNOWN = {name: getattr(schedules, name) for name in ("Constant", "Exponential", "Linear")}


def stated_defaults(kind):
    """The attributes a docstring describes, each with the default it states, `MISSING` where it states none."""
    doc = inspect.cleandoc(kind.__doc__)
    _, _, attributes = doc.partition("Attributes:\n")
    attributes = attributes.partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", attributes, re.MULTILINE)
    defaults = {}
    for name, text in entries:
        default = re.search(r"Default: (.+?)\.$", " ".join(text.split()))
        defaults[name] = eval(default[1], dict(KNOWN)) if default else dataclasses.MISSING
    return defaults


def own_defaults(kind):
    """The options a class declares itself, with their true defaults."""
    return {
        field.name: field.default for field in dataclasses.fields(kind) if field.name in inspect.get_annotations(kind)
    }


@pytest.mark.parametrize("kind", SAMPLERS, ids=lambda kind: kind.__name__)
class TestDocstrings:
    def test_formula(self, kind):
        words = " ".join(kind.__doc__.split())
        distribution = re.search(r"(?:[Dd]istribution|[Pp]robability)\b[^:]*: (.+?) Source: ", words)
        assert distribution, "no closed form is stated"
        assert re.search(r"P\(\w+\) (=|∝|is) ", distribution[1])

    def test_source(self, kind):
        source = re.search(r"Source: (\S.*?)[.;:]?(?:$|\n\n| \()", " ".join(inspect.cleandoc(kind.__doc__).split()))
        assert source, "no source is stated"
        assert re.search(r"\b(19|20)\d\d\b", source[1]) or source[1].startswith(("none,", 'the "'))

    def test_defaults(self, kind):
        assert stated_defaults(kind) == own_defaults(kind)
        inherited = {field.name for field in dataclasses.fields(kind)} - set(own_defaults(kind))
        if inherited:
            words = " ".join(kind.__doc__.split())
            assert f"attributes and defaults: those of `{kind.__mro__[1].__name__}`" in words

    def test_a_reason_is_given_where_there_is_no_distribution(self, kind):
        assert issubclass(kind, Sampler)
        if isinstance(kind.no_closed_form, str):
            assert kind.no_closed_form == "" or len(kind.no_closed_form.split()) > 5


def test_the_reader_can_fail():
    assert stated_defaults(Combined) == {"mode": "plus", "distinct": False}
    assert stated_defaults(Prioritized)["beta"] == Linear(0.4, 1.0)
    assert stated_defaults(Prioritized)["epsilon"] == 1e-6

    @dataclasses.dataclass(frozen=True)
    class Other(Sampler):
        """Says another default.

        Attributes:
            a: One. Default: 2.
            b: Two.
        """

        a: int = 1
        b: int = 2

    assert stated_defaults(Other) == {"a": 2, "b": dataclasses.MISSING}
    assert own_defaults(Other) == {"a": 1, "b": 2}
