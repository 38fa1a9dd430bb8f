"""The list of words that `make lint` rejects: each habit, planted, is found, and what is not prose is left alone."""

import pytest

from tests.plain_language import NAMES, PHRASES, VAGUE, VAGUE_ALLOWED, VAGUE_UNCHECKED, findings

PLANTED = {
    "The law of one row is exact.": "law",
    "A clear error names the mend.": "mend",
    "A sampler of your own is a class.": "of your own",
    "What cannot be drawn is told.": "is told",
    "The shards have told nothing.": "have told",
    "The learner was not told.": "not told",
    "The returned count says so.": "says so",
    "A device that is none raises an error.": "that is none",
    "The path is no folder.": "is no folder",
    "This sampler takes none.": "takes none",
    "Start anew.": "anew",
    "Nothing changes, but for one thing.": "but for",
    "The answer hangs on the loss.": "hangs on",
    "Who wants to add seeds plans looks.": "Who wants",
}


def test_every_pattern_is_planted():
    assert len(PLANTED) >= len(PHRASES)


@pytest.mark.parametrize(("sentence", "habit"), PLANTED.items())
@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("page.md", "# Title\n\n{}\n"),
        ("module.py", '"""Docstring.\n\n{}\n"""\n'),
        ("module.py", "# {}\n"),
        ("module.py", 'raise ValueError("{}")\n'),
        ("core.cpp", "// {}\nint x;\n"),
        ("study.toml", "# {}\nseeds = 1\n"),
    ],
)
def test_a_planted_habit_is_found(file, form, sentence, habit):
    found = findings(file, form.format(sentence))
    assert len(found) == 1
    assert f"'{habit}'" in found[0]
    line = form[: form.index("{")].count("\n") + 1
    assert found[0].startswith(f"{file}:{line}: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found(name):
    for code in ("{}_of = 1", "def has_{}(x): pass", "f = lambda {}: 1"):
        assert len(findings("tests/module.py", code.format(name))) == 1
    assert len(findings("tests/module.py", f"class No{name.title()}: pass")) == 1


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("test_verdicts_hang_on_nothing", "depends on"),
        ("test_an_empty_replay_says_so", "report, raise, log"),
        ("ValueThatIsNone", "invalid"),
    ],
)
def test_a_phrase_in_a_name_is_found(name, instead):
    (finding,) = findings("tests/module.py", f"\ndef {name}(x): pass\n")
    assert finding.startswith(f"tests/module.py:2: the name {name}: write {instead}")


DOCSTRINGS = (
    '"""{}"""',
    'x = 1\n"""{}"""',
    'class A:\n    """{}"""',
    'class A:\n    x = 1\n    """{}"""',
    'def f():\n    """\n    {}"""',
)


@pytest.mark.parametrize("code", DOCSTRINGS)
@pytest.mark.parametrize("word", ["What", "Which", "Whose", "Who", "How"])
def test_the_first_word_of_a_docstring_is_found(word, code):
    text = code.format(f"{word} it holds.")
    (finding,) = findings("src/replaylab/study/module.py", text)
    assert f": a docstring begins with '{word}': " in finding
    assert findings("src/replaylab/study/module.py", code.format("Whatever it holds. What follows.")) == []


@pytest.mark.parametrize("name", VAGUE)
def test_a_vague_name_is_found_in_checked_folders(name):
    for code in ("{} = 1", "def f({}): pass", "def _{}(x): pass", "x = [{} for {} in y]", "self._{} = 1"):
        text = code.replace("{}", name)
        (finding,) = [line for line in findings("src/module.py", text) if line.endswith("what it holds")]
        assert finding.startswith("src/module.py:1: the name ")
        for file in (*(f"{folder}module.py" for folder in VAGUE_UNCHECKED), *VAGUE_ALLOWED):
            assert not any("what it holds" in line for line in findings(file, text))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("src/replaylab/watch/module.py", "f(one=1)\none_hot = x.found\n"),
        ("page.md", "```python\nlaw = 1\n```\nUse `law` and [a page](law.md).\n"),
        ("module.py", "x = sampler.law\nflaw = 1\n"),
        ("module.py", '"""Flaws, a commander, your own sampler, its own file."""\n'),
        ("core.cpp", "double law(int x);\n"),
    ],
)
def test_what_is_left_alone(file, text):
    assert findings(file, text) == []
