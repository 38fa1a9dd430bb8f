"""Words and phrases that readers stumble over, each with what to write instead: `python -m tests.plain_language`.

Looks into Markdown outside code, into comments, docstrings and strings of Python, comments of C++, study files, and the
names that Python code defines, whose parts are read as words: ``depends_on`` as "depends on".
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]

PHRASES = {
    r"\blaws?\b": "sampling distribution, sampling probability, guarantee",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bof (one['’]s|your|its|their|his) own(?=[.,;:)]|$| (is|are|and|or|in|on|for|to|that|which|with)\b)": (
        "custom, or: its own X, your own X"
    ),
    r"\b(is|are|was|were|be|been|not|have|has|had) told\b|\btold (of|about|apart)\b": (
        "reported, logged, recorded, passed"
    ),
    r"\bsays? so\b": "report, raise, log",
    r"\bthat (is|are) none\b|\bis no (path|number|name|text|folder|file)\b": "invalid, missing, not a path",
    r"\btakes none\b": "does not take any",
    r"\banew\b": "again, from scratch",
    r"\bbut for\b": "except",
    r"\bhangs? on\b": "depends on",
    r"\b(?-i:Who) (wants|has|needs|asks|gives|adds)\b": "If you want",
}
"""Patterns, of any case, and what is written instead."""

NAMES = {"law": "distribution", "laws": "guarantees", "lawless": "without_closed_form", "mend": "fix", "told": "passed"}
"""Words that no defined name has as a part, and what it has instead."""

OPENING = re.compile(r"\s*(What|Which|Whose|Who|How)\b")
"""First words that no docstring has."""

VAGUE = ("found", "given", "kept", "made", "one", "ours", "own", "theirs", "there", "whole")
"""Names that do not say what they hold."""

VAGUE_UNCHECKED = ("tests/distributed/",)
"""Folders in which names may be vague. Take a folder out when its names are rewritten; add none."""

VAGUE_ALLOWED = {
    "src/replaylab/arguments.py": "`whole` is the rule of whole numbers",
}
"""Other files that may have vague names, and why."""

ALLOWED = {
    "tests/plain_language.py": "the list itself",
    "tests/test_plain_language.py": "plants every habit",
    "golden/changes.toml": "names what was renamed",
}
"""Files that may have them, and why."""

CODE_IN_MARKDOWN = re.compile(r"^```.*?^```|^:::?.*?$|`[^`\n]*`|\]\([^)]*\)|<[^>\n]*>", re.M | re.S)
COMMENT_OF_CPP = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def prose(file: str, text: str) -> list[tuple[int, str]]:
    """Return the parts of a file that people read, each with the line it begins in."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    if file.endswith(".md"):
        return [(1, CODE_IN_MARKDOWN.sub(blank, text))]
    if file.endswith(".toml"):
        return [(1, text)]
    if file.endswith((".cpp", ".hpp")):
        return [(text.count("\n", 0, match.start()) + 1, match[0]) for match in COMMENT_OF_CPP.finditer(text)]
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string) for token in tokens if token.type in kinds]


def defined(text: str) -> list[tuple[int, str]]:
    """Return the names that Python code defines, each with its line."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
    return names


def docstrings(text: str) -> list[tuple[int, str]]:
    """Return the docstrings of Python code, also those below attributes, each with its line."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, scopes)]
    strings = [statement.value for body in bodies for statement in body if isinstance(statement, ast.Expr)]
    return [(s.lineno, s.value) for s in strings if isinstance(s, ast.Constant) and isinstance(s.value, str)]


def findings(file: str, text: str) -> list[str]:
    """Return a line for each habit in a file: where it is, and what to write instead."""
    lines = []
    for begin, part in prose(file, text):
        for pattern, instead in PHRASES.items():
            for match in re.finditer(pattern, part, re.I | re.M):
                line = begin + part.count("\n", 0, match.start())
                lines.append(f"{file}:{line}: '{match[0].strip()}': write {instead}")
    if not file.endswith(".py"):
        return lines
    for line, docstring in docstrings(text):
        if opening := OPENING.match(docstring):
            lines.append(f"{file}:{line}: a docstring begins with '{opening[1]}': begin with a noun or an imperative")
    for line, name in defined(text):
        if name.strip("_") in VAGUE and not file.startswith(VAGUE_UNCHECKED) and file not in VAGUE_ALLOWED:
            lines.append(f"{file}:{line}: the name {name}: write what it holds")
        lines += [f"{file}:{line}: the name {name}: write {instead}" for instead in _replacements(name)]
    return lines


def _replacements(name: str) -> list[str]:
    """Return what to write instead of the parts of a name, or else instead of the phrases that they make."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    words = [NAMES[part] for part in parts if part in NAMES]
    return words or [instead for pattern, instead in PHRASES.items() if re.search(pattern, " ".join(parts))]


def main() -> int:
    """Print what is found in the files under version control; return 1 if there is anything."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [name for name in listed if name.endswith((".md", ".py", ".cpp", ".hpp", ".toml")) and name not in ALLOWED]
    lines = [line for name in files for line in findings(name, (ROOT / name).read_text(encoding="utf-8"))]
    print("\n".join(lines) or f"plain language: {len(files)} files")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
