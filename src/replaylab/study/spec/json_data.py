"""Tables of a study as JSON holds them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel


def json_data(table: BaseModel) -> dict[str, Any]:
    """Return a table as it comes back from JSON: lists for tuples, but infinities and NaN as they are.

    Pydantic's ``mode="json"`` makes None of numbers that are not finite; Python's JSON writes ``Infinity`` and ``NaN``,
    and reads them.

    Examples:
        >>> from replaylab.study.spec.components import Part
        >>> json_data(Part.of("uniform", {"limits": (0.0, float("inf"))}))
        {'type': 'uniform', 'limits': [0.0, inf]}
    """
    read: dict[str, Any] = json.loads(json.dumps(table.model_dump()))
    return read
