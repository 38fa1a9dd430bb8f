"""A run's settings in study files: tables made from the declarations of `TrainingConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from replaylab.learners.training.configuration import IN_STUDIES, REQUIRED, Fitting, InStudy


class SettingsTable(BaseModel):
    """A table whose keys, their rules and defaults are declared by `TrainingConfig`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


def _default(setting: InStudy) -> Any:
    """Return a key's default; one that depends on the budget is the largest until `with_defaults` has filled it in."""
    if setting.default is REQUIRED:
        return ...
    return setting.default.most if isinstance(setting.default, Fitting) else setting.default


def with_defaults(table: Mapping[str, Any], total: int, unit: str) -> dict[str, Any]:
    """Return a study's table with the defaults that depend on the budget.

    Args:
        table: The study's; its tables of settings may be missing.
        total: The smallest budget of its strategies.
        unit: Steps or episodes.
    """
    filled = dict(table)
    for setting in IN_STUDIES.values():
        settings = filled.get(setting.table, {})
        if isinstance(setting.default, Fitting) and isinstance(settings, Mapping):
            filled[setting.table] = {setting.key: setting.default.within(total, unit), **settings}
    return filled


def _annotation(setting: InStudy) -> Any:
    if setting.kind is bool:
        return Annotated[bool, Field(strict=True)]
    return Annotated[int, Field(ge=setting.least, lt=2**63, strict=True)]


def _table(name: str) -> Any:
    """Return the model of a table of settings."""
    keys: dict[str, Any] = {
        setting.key: (_annotation(setting), _default(setting))
        for setting in IN_STUDIES.values()
        if setting.table == name
    }
    return create_model(f"{name.title()}Table", __base__=SettingsTable, **keys)


def _flat() -> Any:
    """Return the model of all settings under the names of `TrainingConfig`."""
    fields: dict[str, Any] = {name: (setting.kind, ...) for name, setting in IN_STUDIES.items()}
    return create_model("RunSettings", __base__=SettingsTable, **fields)


if TYPE_CHECKING:
    EvaluationTable = SettingsTable
    LoggingTable = SettingsTable
    MeasuresTable = SettingsTable
    RunSettings = SettingsTable
else:
    EvaluationTable, LoggingTable, MeasuresTable = (_table(name) for name in ("evaluation", "logging", "measures"))
    RunSettings = _flat()
