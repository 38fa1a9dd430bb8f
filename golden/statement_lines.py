"""Count statement lines, without blank lines, comments and docstrings: `python -m golden.statement_lines src tests`."""

import ast
import sys
import tokenize
from pathlib import Path

SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def statement_lines(file: Path) -> int:
    """Return how many lines of a Python file hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    with tokenize.open(file) as text:
        for token in tokenize.generate_tokens(text.readline):
            if token.type not in SKIPPED:
                lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        files = sorted(Path(folder).rglob("*.py"))
        print(f"{folder}: {sum(map(statement_lines, files)):,} statement lines in {len(files)} files")
