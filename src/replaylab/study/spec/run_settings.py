"""A run's settings in study files: tables made from the declarations of `TrainingConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from replaylab.learners.training.configuration import IN_STUDIES, REQUIRED, InStudy


class SettingsTable(BaseModel):
    """A table whose keys, their rules and defaults are declared by `TrainingConfig`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


def _annotation(setting: InStudy) -> Any:
    if setting.kind is bool:
        return Annotated[bool, Field(strict=True)]
    return Annotated[int, Field(ge=setting.least, lt=2**63, strict=True)]


def _table(name: str) -> Any:
    """Return the model of a table of settings."""
    keys: dict[str, Any] = {
        one.key: (_annotation(one), ... if one.default is REQUIRED else one.default)
        for one in IN_STUDIES.values()
        if one.table == name
    }
    return create_model(f"{name.title()}Table", __base__=SettingsTable, **keys)


def _flat() -> Any:
    """Return the model of all settings under the names of `TrainingConfig`."""
    fields: dict[str, Any] = {
        name: (one.kind, one.default if one.if_changed else ...) for name, one in IN_STUDIES.items()
    }
    return create_model("RunSettings", __base__=SettingsTable, **fields)


if TYPE_CHECKING:
    EvaluationTable = SettingsTable
    LoggingTable = SettingsTable
    MeasuresTable = SettingsTable
    RunSettings = SettingsTable
else:
    EvaluationTable, LoggingTable, MeasuresTable = (_table(name) for name in ("evaluation", "logging", "measures"))
    RunSettings = _flat()


def identity_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what settings add to what identifies a result.

    Args:
        settings: Values by the names of `TrainingConfig`.
    """
    return {
        name: settings[name]
        for name, one in IN_STUDIES.items()
        if not (one.if_changed and settings[name] == one.default)
    }
