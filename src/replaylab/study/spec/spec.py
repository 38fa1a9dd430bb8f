"""`Spec`: a study, read from its file or from the record of its results."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from replaylab.arguments import checked, place
from replaylab.errors import SpecError
from replaylab.study.spec.checks import check_cells, check_tables
from replaylab.study.spec.errors import explain
from replaylab.study.spec.resolve import resolve, resolve_overrides
from replaylab.study.spec.study_tables import StudyTables
from replaylab.study.spec.toml_model import StudyToml


class Spec(StudyTables):
    """A validated study: everything that decides its numbers, with every default filled in.

    The same file read next year under other defaults is a different study, and its results have other ids.
    `StudyToml` documents the file.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_tables(self)
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read, validate and complete a study file.

        Raises:
            SpecError: The file is missing or not TOML, a key is unknown, or a value breaks a rule; the message
                names the file, the key's path, the rule and the value.
        """
        file = Path(checked("path", path, place("a study file")))
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"{file}: cannot be read: {error.strerror}.") from error
        except RecursionError as error:
            raise SpecError(f"{file}: is nested too deep.") from error
        except ValueError as error:  # not of TOML's grammar, not of UTF-8, a number of 5,000 digits
            raise SpecError(f"{file}: is not valid TOML: {error}.") from error
        return cls.from_table(table, source=str(file))

    @classmethod
    def from_table(cls, table: dict[str, Any], *, source: str = "study") -> Self:
        """Validate and complete a study given as the nested tables of a study file; ``source`` is named in errors.

        Raises:
            SpecError: As in `from_toml`.
        """
        try:
            spec = cls(**dict(resolve(StudyToml.model_validate(table), source)))
        except ValidationError as error:
            raise SpecError(explain(error, StudyToml, source)) from error
        check_cells(spec, source)
        return spec

    @classmethod
    def from_record(cls, record: str) -> Self:
        """Return the study of a record that holds it as it was resolved, such as `study.json`.

        Args:
            record: JSON of the fields of this class.

        Raises:
            ValueError: A field is missing or unknown, or a value breaks a rule.
        """
        spec = cls.model_validate_json(record)
        if "overridden" in spec.model_fields_set:
            return spec
        # Records of earlier versions lack it.
        return spec.model_copy(update={"overridden": resolve_overrides(spec.learners, spec.overrides, spec.name)})
