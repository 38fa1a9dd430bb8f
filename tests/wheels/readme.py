"""README's and the first pages' Python blocks, in an environment that has only what their own commands install.

`python tests/wheels/readme.py WHEEL [PIP_OPTION...]` makes an empty environment for each page of `PAGES`, runs the
page's first `pip install` in it, with the wheel in place of the clone, and then every block marked ``python``, from top
to bottom in one namespace, in an empty folder. It needs only the standard library, here and there.
"""

import doctest
import re
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/index.md", "docs/start/index.md")
INSTALL = re.compile(r"^\$ pip install (.*?)(?: +#.*)?$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def packages(text):
    """Return what a page's first `pip install` names; the clone itself is "."."""
    return INSTALL.search(text)[1].replace('"', "").split()


def run_blocks(page):
    """Run a page's blocks; doctest prompts are checked for what they print. Return how many there are."""
    text, names = (ROOT / page).read_text(encoding="utf-8"), {"__name__": page}
    blocks = list(BLOCK.finditer(text))
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        if ">>> " in block[1]:
            test = doctest.DocTestParser().get_doctest(block[1], names, page, page, line)
            doctest.DebugRunner().run(test, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * line + block[1], page, "exec"), names)
    return len(blocks)


def follow(page, wheel, pip_options):
    """Make the page's environment and run its blocks there."""
    with TemporaryDirectory() as folder:
        environment, away = Path(folder, "environment"), Path(folder, "away")
        away.mkdir()
        venv.create(environment, with_pip=True)
        python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        wanted = [str(wheel) if name == "." else name for name in packages((ROOT / page).read_text(encoding="utf-8"))]
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pip_options]
        subprocess.run([*pip, *wanted], check=True)
        subprocess.run([python, "-P", __file__, "--blocks", page], check=True, cwd=away)


def main(arguments):
    """Follow every page, or run one page's blocks here."""
    if arguments[0] == "--blocks":
        print(f"{arguments[1]}: {run_blocks(arguments[1])} blocks ran")
        return
    wheel, *pip_options = arguments
    for page in PAGES:
        follow(page, Path(wheel).resolve(), pip_options)


if __name__ == "__main__":
    main(sys.argv[1:])
