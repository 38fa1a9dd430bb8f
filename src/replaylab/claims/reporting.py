"""Running claims, and reporting what came out: lines to read, JSON for programs."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from replaylab.claims.claim import Claim, ReplicatedFigure, overall
from replaylab.number_format import significant


def run(claims: Iterable[Claim], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure the claims one after another, say each figure as it comes, and return all of it as JSON values."""
    return [_run(claim, say) for claim in claims]


def _run(claim: Claim, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"\n{claim.number}. {claim.title}: {claim.statement}")
    say(f"   Source: {claim.source}. Takes about {claim.minutes:g} min.")
    figures = []
    for figure in claim.measure():
        figures.append(figure)
        say(line(figure))
    say(f"   verdict: {overall(figures)}")
    described = {name: getattr(claim, name) for name in ("number", "title", "statement", "source")}
    return described | {"verdict": overall(figures), "findings": [asdict(figure) for figure in figures]}


def line(figure: ReplicatedFigure) -> str:
    """Return a figure in one line."""
    interval = "" if figure.low == figure.high else f" [{significant(figure.low, 4)}, {significant(figure.high, 4)}]"
    ours = f"{significant(figure.ours, 4)}{interval} ({figure.interval})"
    verdict = "" if figure.verdict is None else f": {figure.verdict}"
    return f"   {figure.what}: source {figure.theirs}; ours {ours}{verdict}"


def dump(results: list[dict[str, Any]]) -> str:
    """Return what `run` returned as JSON text."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"
