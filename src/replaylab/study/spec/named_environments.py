"""Environments under custom names, so that a study can use one Gymnasium id with several sets of options.

``[env_options.NAME]`` with a key ``id`` says that NAME, listed in ``environments``, is made of that id and the table's
other keys; without it the name is the id. No constructor has an argument of that name: Gymnasium's own has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from typing import Any

ID = "id"


def made_of(environment: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an environment's Gymnasium id, and the arguments of its constructor."""
    return options.get(ID, environment), {key: value for key, value in options.items() if key != ID}


def module_of(env_id: str) -> str:
    """Return the module that Gymnasium imports before it looks an id up, as in "my_envs:Mine-v0"; "" for none."""
    return env_id.partition(":")[0] if ":" in env_id else ""


def check_options(tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return ``[env_options]`` if every ``id`` in it could be one.

    Raises:
        ValueError: one is not a text, or an option is a date or time, which identifies no run.
    """
    for name, table in tables.items():
        for option, value in table.items():
            _check_plain(f"`{option}` of {name!r}", value)
        if not isinstance(env_id := table.get(ID, name), str) or not env_id:
            raise ValueError(f"must hold as `id` of {name!r} a Gymnasium id, a text")
    return tables


def _check_plain(where: str, value: Any) -> None:
    """Refuse what identifies no run, at any depth: TOML's dates and times."""
    if isinstance(value, date | time):
        raise ValueError(f"{where} must be a number, text, list or table, but got {value!r}; write it as a text")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _check_plain(where, inner)
