"""Running of claims and reports of their results: lines, a Markdown table, and JSON."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from replaylab.claims.claim import Claim, ReplicatedFigure, overall
from replaylab.files.atomic import write_text
from replaylab.number_format import significant
from replaylab.study import Study, catalog

Say = Callable[[str], None]
HEAD = ("claim", "figure", "published", "here", "interval", "verdict", "minutes")


def run(claims: Iterable[Claim], say: Say, results: Path = Path("results")) -> list[dict[str, Any]]:
    """Measure the claims one after another, report each figure at once, and return all results as JSON values.

    Args:
        claims: The claims.
        say: Called with each line of output.
        results: The folder with the folders of the studies.
    """
    return [_run(claim, say, results) for claim in claims]


def rerun(claims: Iterable[Claim], say: Say, folder: Path) -> list[dict[str, Any]]:
    """Measure the claims with the current code, and report and write a table of the results.

    Results and studies are stored in ``folder/CODE``, with CODE a digest of the code; claims that have results there
    are not measured again.

    Args:
        claims: The claims.
        say: Called with each line of output.
        folder: The folder for the results of all versions of the code.

    Returns:
        The results, as `run` returns them.

    Raises:
        StorageError: A file cannot be written.
    """
    place = folder / code_digest()
    results = []
    for claim in claims:
        file = place / f"claim-{claim.number}.json"
        if file.is_file():
            results += json.loads(file.read_text(encoding="utf-8"))
            say(f"\n{claim.number}. {claim.title}: measured before, {file}")
            continue
        measured = run([claim], say, place)
        write_text(file, dump(measured))
        results += measured
    write_text(place / "claims.md", table(results))
    say(f"\n{table(results)}\nThe same as a file: {place / 'claims.md'}")
    return results


def code_digest() -> str:
    """Return 12 hexadecimal digits of a SHA-256 over this code, its compiled core and its studies."""
    digest = hashlib.sha256()
    package, core = Path(__file__).parents[1], find_spec("replaylab._core")
    assert core is not None
    assert core.origin is not None
    for file in [*sorted(package.rglob("*.py")), Path(core.origin), *catalog.shipped().values()]:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _run(claim: Claim, say: Say, results: Path) -> dict[str, Any]:
    say(f"\n{claim.number}. {claim.title}: {claim.statement}")
    say(f"   Source: {claim.source}. Takes about {claim.minutes:g} min.")
    begun, figures = time.monotonic(), []
    for figure in claim.measure(*(Study.from_toml(name, results / name) for name in claim.studies)):
        figures.append(figure)
        say(line(figure))
    say(f"   verdict: {overall(figures)}")
    described = {name: getattr(claim, name) for name in ("number", "title", "statement", "source")}
    seconds = round(time.monotonic() - begun, 1)
    findings = [asdict(figure) for figure in figures]
    return described | {"verdict": overall(figures), "seconds": seconds, "findings": findings}


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the results of `run` as a Markdown table, a line for each figure."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for claim in results:
        name, minutes = f"{claim['number']}. {claim['title']}: **{claim['verdict']}**", f"{claim['seconds'] / 60:.1f}"
        for finding in claim["findings"]:
            value, low, high = (significant(finding[end], 4) for end in ("ours", "low", "high"))
            interval = finding["interval"] if low == high else f"{low} to {high}, {finding['interval']}"
            lines.append((name, finding["what"], finding["theirs"], value, interval, finding["verdict"] or "", minutes))
            name, minutes = "", ""
    total = sum(claim["seconds"] for claim in results) / 60
    lines.append(("all", "", "", "", "", "", f"{total:.1f}"))
    return "".join(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |\n" for cells in lines)


def line(figure: ReplicatedFigure) -> str:
    """Return a figure as one line of text."""
    interval = "" if figure.low == figure.high else f" [{significant(figure.low, 4)}, {significant(figure.high, 4)}]"
    value = f"{significant(figure.ours, 4)}{interval} ({figure.interval})"
    verdict = "" if figure.verdict is None else f": {figure.verdict}"
    return f"   {figure.what}: source {figure.theirs}; ours {value}{verdict}"


def dump(results: list[dict[str, Any]]) -> str:
    """Return the results of `run` as JSON text."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"
