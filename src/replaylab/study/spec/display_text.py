"""Texts of a study file that are shown as they are: on terminals, in pages, figures and tables."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator


def _line(text: str) -> str:
    wrong = next((letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs", "Cn", "Zl", "Zp")), None)
    if wrong is not None:
        raise ValueError(f"must be one line of letters that can be shown, without {wrong!r}")
    return text


def _prose(text: str) -> str:
    _line(text.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    return text


Line = Annotated[str, AfterValidator(_line)]
"""A name: no control characters, which would move a terminal's cursor and cannot be in an SVG."""

Prose = Annotated[str, AfterValidator(_prose)]
"""A text, of one line or more."""
