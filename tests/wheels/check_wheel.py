"""What an installed wheel must do: the README's examples of the buffer, and the recorded draws. Needs NumPy alone.

`python tests/wheels/check_wheel.py`, with the Python of the environment that the wheel is installed in; `--first` runs
the README's first example alone.
"""

import doctest
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def examples(first_alone):
    """Return the README's examples as a doctest: the first, or all before the laboratory's."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text.split("## The laboratory")[0]
    if first_alone:
        blocks = text.split("```python\n")
        text = "\n" * blocks[0].count("\n") + blocks[1].split("```")[0]
    return doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)


def differing_draws():
    """Return what each case drew that is not as recorded, and how many cases there are."""
    sys.path.insert(0, str(ROOT))
    from tests.wheels import golden

    cases = list(golden.cases())
    return [drawn for *case, line in cases if (drawn := golden.draws(*case)) != line], len(cases)


def main():
    """Check, and end with status 1 where something is not as it should be."""
    first_alone = "--first" in sys.argv
    test = examples(first_alone)
    failed = doctest.DocTestRunner().run(test).failed
    print(f"README: {len(test.examples)} lines, {failed} failed, with Python {sys.version.split()[0]}")
    if not first_alone:
        wrong, cases = differing_draws()
        print(*wrong, f"draws: {cases} cases, {len(wrong)} not as recorded", sep="\n")
        failed += len(wrong)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
