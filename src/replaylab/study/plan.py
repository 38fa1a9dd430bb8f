"""The chunks of a study, each identified by a hash of everything that decides its numbers.

A chunk is one call of the training loop: one environment, one learner, one strategy, some of the seeds. Chunks depend
on the study file (`chunk_size`) and on the stored chunks, never on the number of workers: floating-point sums may
depend on how many replicas share an array, so a chunk's make-up belongs to what identifies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product, zip_longest
from typing import Any, Literal, Self

from pydantic import Field

from replaylab.files.canonical_json import canonical, digest
from replaylab.learners.training.configuration import IN_STUDIES, TrainingConfig
from replaylab.study.spec.components import (
    ALONE,
    LEARNERS,
    SHIFT,
    STRATEGIES,
    TAPES,
    TRANSFORMS,
    Part,
    build,
    json_data,
)
from replaylab.study.spec.custom_components import check_file
from replaylab.study.spec.spec import Spec
from replaylab.study.spec.study_tables import made_of, module_of
from replaylab.study.spec.toml_model import RunSettings, Watch

Seeds = tuple[int, ...]


NUMBERS_VERSION = 1
"""Raise it when the same settings begin to give other numbers (a fixed learner, another metric): old files
then no longer match, and are run again rather than mixed in."""


class Chunk(RunSettings):
    """Runs trained together: the unit of work, of storage and of resumption.

    ``learner`` and ``strategy`` are the names the study file gives; ``learner_part`` and ``strategy_part``
    what they stand for. ``steps`` is the budget of one run, in ``unit``, and so are the periods. The further fields
    are the settings that study files give, under the names of `TrainingConfig`.
    """

    environment: str
    learner: str
    learner_part: Part
    strategy: str
    strategy_part: Part
    seeds: tuple[int, ...]
    transforms: tuple[Part, ...] = ()
    env_options: dict[str, Any] = Field(default={})
    environment_code: str = ""
    """The first digits of the SHA-256 of the module that its id names; "": it names none."""

    steps: int
    unit: Literal["steps", "episodes"] = "steps"
    watch: Watch = Watch()
    tape_of: Chunk | None = None
    """The chunk whose draws it learns from, of the same seeds; None: it draws itself."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The environment, the learner and the strategy."""
        return self.environment, self.learner, self.strategy

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that study files give in their tables, by the names of `TrainingConfig`."""
        return {name: getattr(self, name) for name in IN_STUDIES}

    def with_seeds(self, seeds: Seeds) -> Self:
        """Return the same of other seeds."""
        source = self.tape_of and self.tape_of.with_seeds(seeds)
        return self.model_copy(update={"seeds": seeds, "tape_of": source})

    @property
    def made_of(self) -> tuple[str, dict[str, Any]]:
        """The Gymnasium id of the environment, and its constructor's arguments."""
        return made_of(self.environment, self.env_options)

    def configuration(self, tape: str | None = None) -> TrainingConfig:
        """Return what is trained, for `replaylab.learners.train`.

        Args:
            tape: where the tape is, of a chunk that learns from one; None, for a trial: it draws as the recorded
                one does.

        Raises:
            SpecError: A sampler, learner or environment is your own, and its code is not what it was.
            ConfigError: Parts do not fit each other.
        """
        budget: dict[str, Any] = {f"total_{self.unit}": self.steps}
        env_id, env_options = self.made_of
        if self.environment_code:
            check_file(module_of(env_id), self.environment_code)
        return TrainingConfig(
            env_id,
            build(self.learner_part, LEARNERS),
            self._sampler(tape),
            transforms=[build(part, TRANSFORMS) for part in self.transforms],
            env_options=env_options,
            **budget,
            **self.settings,
        )

    def _sampler(self, tape: str | None) -> Any:
        if self.tape_of is None:
            return build(self.strategy_part, STRATEGIES)
        if tape is None:
            return build(self.tape_of.strategy_part, STRATEGIES)
        return TAPES[self.strategy_part.type](tape, SHIFT)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the rows, labels included, and nothing else (no worker count, no titles)."""
        return {
            "numbers_version": NUMBERS_VERSION,
            "environment": self.environment,
            "learner": {self.learner: json_data(self.learner_part)},
            "strategy": {self.strategy: json_data(self.strategy_part)},
            "transforms": [json_data(part) for part in self.transforms],
            "env_options": self.env_options,
            **({"environment_code": self.environment_code} if self.environment_code else {}),
            "seeds": list(self.seeds),
            self.unit: self.steps,
            **{k: v for k, v in self.settings.items() if not (IN_STUDIES[k].later and v == IN_STUDIES[k].default)},
            **({} if self.tape_of is None else {"tape_of": _without_seeds(self.tape_of.identity)}),
        }

    @property
    def id(self) -> str:
        """Readable labels, then 16 hexadecimal digits of the identity's SHA-256; safe as a file name."""
        return f"{self.prefix}{digest(self.identity)}"

    @property
    def prefix(self) -> str:
        """The readable part of the id."""
        return f"{re.sub(r'[^A-Za-z0-9_.+-]', '-', self.environment)}.{self.learner}.{self.strategy}."

    @property
    def label(self) -> str:
        """A short name for people."""
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds from {self.seeds[0]}"
        return f"{self.environment} · {self.learner} · {self.strategy} · {seeds}"


def plan(spec: Spec, present: Iterable[Mapping[str, Any]] = ()) -> list[Chunk]:
    """Return the chunks of a study, in the order in which they are run and reported.

    Args:
        spec: the study.
        present: identities of stored chunks; those of the study's settings are kept unchanged, and only seeds that none
            of them holds make new ones.
    """
    seeds_there: dict[str, list[Seeds]] = {}
    for identity in present:
        seeds_there.setdefault(_settings(identity), []).append(tuple(identity["seeds"]))
    chunks = []
    for environment, learner in product(spec.environments, spec.learners):
        cells = [
            _cell(spec, environment, learner, s)
            for s in spec.strategies
            if learner in spec.learners_of(s) and environment in spec.environments_of(s, learner)
        ]
        taped = any(cell.tape_of for cell in cells)  # then seeds that learn from each other are one chunk
        size = 1 if spec.learners[learner].type in ALONE and not taped else spec.chunk_size
        # Of a tape those of what it replays: its seeds learn from each other's.
        drawing = [cell.tape_of or cell for cell in cells]
        seeds_of = [chunked(spec.seeds, size, seeds_there.get(_settings(cell.identity), ())) for cell in drawing]
        for row in zip_longest(*seeds_of):  # seed by seed through all strategies, so that stored runs can be paired
            chunks += [cell.with_seeds(seeds) for cell, seeds in zip(cells, row, strict=True) if seeds]
    return chunks


def chunked(seeds: Seeds, size: int, present: Iterable[Seeds] = ()) -> list[Seeds]:
    """Return chunks that hold each seed once: the stored ones, and new ones for missing seeds.

    The seeds are divided every ``size``, in their order; where nothing is there, that is all. A chunk that is there is
    kept as it is, whatever its size, if no seed of it is unwanted or in a chunk kept before, large ones first; the
    seeds that a regular chunk then lacks make one new chunk. So more seeds run none twice, and running some of the new
    chunks leaves the others as they were. A chunk is used whole or not at all: where a seed of it is not wanted any
    more, its other seeds make new chunks, and run again.

    Example:
        >>> chunked((0, 1, 2, 3, 4), 4)
        [(0, 1, 2, 3), (4,)]
        >>> chunked((0, 1, 2, 3, 4, 5, 6, 7, 8), 4, present=[(0, 1, 2, 3), (4,)])
        [(0, 1, 2, 3), (4,), (5, 6, 7), (8,)]
        >>> chunked((0, 1, 2, 3, 4, 5), 4, present=[(0, 1, 2, 3), (4, 5, 6, 7)])
        [(0, 1, 2, 3), (4, 5)]
        >>> chunked((0, 1, 2, 3, 4, 5), 6, present=[(0, 1), (0, 1, 2, 3), (4, 5)])
        [(0, 1, 2, 3), (4, 5)]
    """
    regular = [seeds[i : i + size] for i in range(0, len(seeds), size)]
    candidates = set(present)
    missing = set(seeds)
    used = []
    for chunk in [c for c in regular if c in candidates] + sorted(candidates, key=lambda c: (-len(c), c)):
        if missing.issuperset(chunk):
            used.append(chunk)
            missing.difference_update(chunk)
    new = [tuple(seed for seed in chunk if seed in missing) for chunk in regular]
    return sorted(used + [chunk for chunk in new if chunk], key=lambda chunk: seeds.index(chunk[0]))


def _cell(spec: Spec, environment: str, learner: str, strategy: str) -> Chunk:
    """Return all seeds of one environment, learner and strategy as one chunk."""
    part = spec.strategies[strategy]
    return Chunk(
        environment=environment,
        learner=learner,
        learner_part=spec.learner_of(strategy, learner),
        strategy=strategy,
        strategy_part=part,
        seeds=spec.seeds,
        transforms=spec.transforms_of(strategy, learner),
        env_options=spec.env_options.get(environment, {}),
        environment_code=spec.environment_code.get(environment, ""),
        steps=spec.budget_of(strategy).total,
        unit=spec.budget.unit,
        watch=spec.watch,
        tape_of=_cell(spec, environment, learner, part.options["of"]) if part.type in TAPES else None,
        **spec.run_settings,
    )


def _settings(identity: Mapping[str, Any]) -> str:
    """Return what identifies a chunk, except for its seeds."""
    return canonical(_without_seeds(identity))


def _without_seeds(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in identity.items() if key != "seeds"}


def runs_of(chunks: Sequence[Chunk]) -> int:
    """Return the number of runs in these chunks."""
    return sum(len(p.seeds) for p in chunks)
