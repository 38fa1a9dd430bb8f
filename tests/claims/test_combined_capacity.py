"""Claim 5: the findings are the contrasts of its studies."""

import numpy as np
import pytest

from replaylab.claims import ReplicationOutcome, combined_capacity
from replaylab.claims.combined_capacity import GRID_WORLD, SAID
from replaylab.study import Study, catalog
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.plan import plan
from replaylab.study.spec.run_settings import EvaluationTable
from replaylab.study.spec.study_file import Spec
from replaylab.study.spec.study_tables import Budget
from tests.claims.test_minatar import made_up
from tests.study.tiny import pretend


def small(tmp_path, **changes):
    spec = Spec.from_toml(catalog.find("combined-capacity"))
    few = {"seeds": (0, 1), "budget": Budget(steps=60), "evaluation": EvaluationTable(every=30, episodes=1)}
    return Study(spec.model_copy(update=few | changes), tmp_path)


def grid_world(folder, harm=20.0, fixed=True):
    """Return `grid-world` where a wrong capacity costs a return of `harm`, unless combined replay fixes it."""

    def rows(chunk):
        capacity = chunk.learner_part.options["capacity"]
        worst = {"table": 100_000, "linear": 100_000, "network": 1_000}[chunk.learner.split(".")[0]]
        worse = capacity == 100_000 or (worst == 1_000 and capacity == 100)
        lost = harm if worse and not (fixed and chunk.strategy == "combined") else 0.0
        for seed in chunk.seeds:
            noise = np.random.default_rng([seed, capacity, len(chunk.strategy)]).normal()
            yield from ((seed, episode, "rollout/ep_rew", noise - 30.0 - lost) for episode in (1, 250, 500))
            yield seed, 500, "eval/mean_reward", -16.0

    return made_up("grid-world", folder, rows)


def test_every_contrast_of_the_studies_is_a_finding_and_what_is_there_is_only_read(tmp_path):
    grid, study = grid_world(tmp_path / "grid"), small(tmp_path / "capacity")
    pretend(study, 5.0)
    findings = list(combined_capacity.measure(grid, study))
    names = [f"{name}: difference in rollout/ep_rew" for name in GRID_WORLD]
    names += [f"{name}: difference in score" for name in SAID]
    assert [one.what for one in findings] == names
    for one, found in zip(findings[len(GRID_WORLD) :], study.contrasts().results, strict=True):
        assert (one.ours, one.low, one.high) == tuple(found.size)
        assert found.cells in (4, 8)
    runs = [file for folder in ("grid", "capacity") for file in (tmp_path / folder / "runs").iterdir()]
    before = {file: file.stat().st_mtime_ns for file in runs}
    assert list(combined_capacity.measure(grid, study)) == findings
    assert {file: file.stat().st_mtime_ns for file in runs} == before


@pytest.mark.parametrize("fixed", [True, False])
def test_the_grid_world_says_what_its_rows_say(tmp_path, fixed):
    found = combined_capacity.contrast_findings(grid_world(tmp_path, fixed=fixed), GRID_WORLD)
    verdicts = {one.what.removesuffix(": difference in rollout/ep_rew"): one.verdict for one in found}
    for name, verdict in verdicts.items():
        holds = fixed or name.endswith((": large buffer", ": small buffer"))
        assert verdict is (ReplicationOutcome.REPRODUCED if holds else ReplicationOutcome.NOT_REPRODUCED), name


@pytest.mark.parametrize(("name", "count"), [("grid-world", 9), ("combined-capacity", 5)])
def test_the_studies_can_be_trained(name, count):
    spec = Spec.from_toml(catalog.find(name))
    kinds = {(p.learner.split(".")[0], p.strategy): p for p in plan(spec)}
    assert len(kinds) == count
    for chunk in kinds.values():
        check_chunk(chunk)
