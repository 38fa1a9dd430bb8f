"""A strategy's overrides of a learner, and its transforms, with every option filled in.

They are resolved once, when a study file is read, and stored in ``study.json``. A folder can therefore be read without
the code that its runs were trained with, and another version's defaults change no id of stored runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replaylab.study.spec.components import LEARNERS, TRANSFORMS, Part, resolve, with_arguments
from replaylab.study.spec.display_text import Table


class ResolvedOverrides(Table):
    """One strategy with one learner."""

    learner: Part | None = None
    """None: as the study has it."""

    transforms: tuple[Part, ...] = ()


def resolved_overrides(
    learner: Part, changes: Mapping[str, Any], transforms: Sequence[Part], strategy: str, source: str
) -> ResolvedOverrides:
    """Resolve the overrides of a strategy with a learner; an n-step return has the learner's discount.

    Args:
        learner: The study's, resolved.
        changes: Settings in place of the learner's.
        transforms: As in the file.
        strategy: Its name, for messages.
        source: The study, for messages.

    Raises:
        SpecError: An option is unknown, or a value breaks a rule.
    """
    where, changed = f"strategies.{strategy}", None
    if changes:
        options = {**learner.options, **changes, **_inner(learner.options, changes)}
        changed = resolve(Part.of(learner.type, options), LEARNERS, f"{where}.learner", source)
    gamma = {"gamma": with_arguments((changed or learner).options).get("gamma", 0.99)}
    resolved_transforms = tuple(
        resolve(
            Part.of(p.type, (gamma if p.type == "n_step" else {}) | p.options),
            TRANSFORMS,
            f"{where}.transforms",
            source,
        )
        for p in transforms
    )
    return ResolvedOverrides(learner=changed, transforms=resolved_transforms)


def without_code(learner: Part) -> Part:
    """Return a learner without the digits of the modules that it names, since a strategy may name others."""
    if learner.type != "sb3":
        return learner
    return Part.of(learner.type, {key: value for key, value in learner.options.items() if key != "code"})


def _inner(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an algorithm's arguments where only some of them are to change."""
    arguments, other = options.get("arguments"), changes.get("arguments")
    return {"arguments": arguments | other} if isinstance(arguments, dict) and isinstance(other, dict) else {}
