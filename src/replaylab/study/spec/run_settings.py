"""A run's settings in study files: tables made from the declarations of `TrainingConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model

from replaylab.learners.training.configuration import IN_STUDIES, REQUIRED, Fitting, InStudy
from replaylab.study.spec.display_text import Table


class SettingsTable(Table):
    """A table whose keys, their rules and defaults are declared by `TrainingConfig`."""

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


if TYPE_CHECKING:
    EvaluationTable = SettingsTable
    LoggingTable = SettingsTable
    MeasuresTable = SettingsTable
    RunSettings = SettingsTable
else:
    EvaluationTable, LoggingTable, MeasuresTable = (_table(name) for name in ("evaluation", "logging", "measures"))
    fields = {name: (setting.kind, ...) for name, setting in IN_STUDIES.items()}  # named as in `TrainingConfig`
    RunSettings = create_model("RunSettings", __base__=SettingsTable, **fields)
