"""Check of an installed wheel: the first page's example, and the recorded draws. Needs only NumPy.

`python tests/wheels/check_wheel.py`, with the Python of the environment that the wheel is installed in; `--first` runs
only the example.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def example():
    """Return the code of the first example of the samplers' page, which needs only NumPy."""
    return (
        (ROOT / "docs" / "reference" / "samplers.md")
        .read_text(encoding="utf-8")
        .split("```python\n")[1]
        .split("```")[0]
    )


def differing_draws():
    """Return what each case drew that is not as recorded, and how many cases there are."""
    sys.path.insert(0, str(ROOT))
    from tests.wheels import golden

    cases = list(golden.cases())
    return [drawn for *case, line in cases if (drawn := golden.draws(*case)) != line], len(cases)


def main():
    """Check, and end with status 1 where something is not as it should be."""
    exec(example(), {})
    print(f"the first example ran with Python {sys.version.split()[0]}")
    if "--first" not in sys.argv:
        wrong, cases = differing_draws()
        print(*wrong, f"draws: {cases} cases, {len(wrong)} not as recorded", sep="\n")
        sys.exit(len(wrong) > 0)


if __name__ == "__main__":
    main()
