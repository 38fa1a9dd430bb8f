"""Running claims, and telling what came out: lines to read, JSON for programs."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from replaylab.claims.finding import Claim, Finding, overall


def run(claims: Iterable[Claim], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure the claims one after another, say each finding as it comes, and return all of it as JSON values."""
    return [_run(claim, say) for claim in claims]


def _run(claim: Claim, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"\n{claim.number}. {claim.title}: {claim.statement}")
    say(f"   Source: {claim.source}. Takes about {claim.minutes:g} min.")
    findings = []
    for finding in claim.measure():
        findings.append(finding)
        say(line(finding))
    say(f"   verdict: {overall(findings)}")
    told = {name: getattr(claim, name) for name in ("number", "title", "statement", "source")}
    return told | {"verdict": overall(findings), "findings": [asdict(finding) for finding in findings]}


def line(finding: Finding) -> str:
    """Return a finding in one line."""
    interval = "" if finding.low == finding.high else f" [{number(finding.low)}, {number(finding.high)}]"
    ours = f"{number(finding.ours)}{interval} ({finding.interval})"
    verdict = "" if finding.verdict is None else f": {finding.verdict}"
    return f"   {finding.what}: source {finding.theirs}; ours {ours}{verdict}"


def number(value: float) -> str:
    """Return a number in four digits, whole ones in full."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def dump(told: list[dict[str, Any]]) -> str:
    """Return what `run` returned as JSON text."""
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
