"""The base of all tables of a study file; its texts that are shown unchanged: names, titles, answers, reference lines.

Titles, answers and reference lines decide no number, so they are not part of a chunk's identity: results stay
valid when they change.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator


def line(text: str) -> str:
    """Return a text of one line of letters that can be shown."""
    wrong = next((letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs", "Cn", "Zl", "Zp")), None)
    if wrong is not None:
        raise ValueError(f"must be one line of letters that can be shown, without {wrong!r}")
    return text


def _prose(text: str) -> str:
    line(text.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    return text


def _factor(value: Any, rule: str = "must be a number, a text, true or false") -> Any:
    """Return a value of `Factor`; of a union pydantic would report one error for each of its types."""
    if not isinstance(value, bool | int | float | str):
        raise ValueError(rule)
    return line(value) if isinstance(value, str) else value


def _factors(value: Any) -> Any:
    rule = "must be a number, a text, true or false, or a list of these"
    return tuple(_factor(entry, rule) for entry in value) if isinstance(value, list | tuple) else _factor(value, rule)


Line = Annotated[str, AfterValidator(line)]
"""A name: no control characters, which would move a terminal's cursor and cannot be in an SVG."""

Prose = Annotated[str, AfterValidator(_prose)]
"""A text, of one line or more."""

Title = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(line)]
"""A name in reports."""

Factor = Annotated[bool | int | float | str, PlainValidator(_factor)]
"""A value that contrasts select by; lists and schedules are represented by their text in names."""

Factors = Annotated[Factor | tuple[Factor, ...], PlainValidator(_factors)]
"""One value that a contrast selects, or several."""


class Table(BaseModel):
    """A TOML table: no unknown keys, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answers(Table):
    """One sentence for each outcome of a comparison; an empty one is generated."""

    higher: Prose = ""
    lower: Prose = ""
    equivalent: Prose = ""
    inconclusive: Prose = ""

    def of(self, verdict: str) -> str:
        """Return the sentence for a verdict; empty if none was declared."""
        return str(getattr(self, verdict, ""))


class ReferenceLine(Table):
    """A return to compare learning curves with, such as the best that is possible."""

    value: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    label: Title = "optimum"
