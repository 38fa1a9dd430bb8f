"""The published statements that shipped studies test: their outcomes for made-up rows, and that the studies train."""

import numpy as np
import pytest

from replaylab.replay import Field, NStep, Queue, ReplayBuffer
from replaylab.study import Spec, Study, catalog
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.plan import plan
from tests.study.tiny import write_rows

STUDIES = ("combined-capacity", "grid-world", "minatar", "minatar-million", "minatar-published")
PARTS = ("uniform-3", "prioritized_as_published")


def outcomes(name, folder, rows_of):
    """Return the outcome of each published statement of a shipped study, from rows made of each chunk."""
    study = Study(Spec.from_toml(catalog.find(name)), folder)
    write_rows(study, rows_of)
    results = study.contrasts().results
    return {result.contrast.name: result.outcome for result in results if result.outcome is not None}


@pytest.mark.parametrize("rescues", [True, False])
def test_grid_world_outcomes_follow_the_rows(tmp_path, rescues):
    """A wrong capacity costs a return of 20, unless combined replay rescues it."""

    def rows(chunk):
        capacity = chunk.learner_part.options["capacity"]
        wrong = capacity == 100_000 or (capacity == 100 and chunk.learner.startswith("network"))
        lost = 20.0 if wrong and not (rescues and chunk.strategy == "combined") else 0.0
        for seed in chunk.seeds:
            noise = np.random.default_rng([seed, capacity, len(chunk.strategy)]).normal()
            yield from ((seed, episode, "rollout/ep_rew", noise - 30.0 - lost) for episode in (1, 250, 500))
            yield seed, 500, "eval/mean_reward", -16.0

    measured = outcomes("grid-world", tmp_path, rows)
    assert len(measured) == 10
    for name, outcome in measured.items():
        holds = rescues or name.endswith((": large buffer", ": small buffer"))
        assert outcome == ("reproduced" if holds else "not reproduced"), name


@pytest.mark.parametrize(
    ("gain", "scatter", "reproduced"),
    [
        (0.3, 0.01, [True, True, False, False, True, True]),
        (0.0, 0.01, [False, True, True, False, False, True]),
        (-0.3, 0.01, [False, False, True, True, False, False]),
        (0.0, 0.6, None),
    ],
    ids=["gain", "none", "loss", "noise"],
)
def test_minatar_outcomes_follow_the_rows(tmp_path, gain, scatter, reproduced):
    """Both parts of Rainbow add as much to DQN's score of .5 in each game."""
    scores = Spec.from_toml(catalog.find("minatar")).scores

    def rows(chunk):
        scale, added = scores[chunk.environment], gain if chunk.strategy in PARTS else 0.0
        for seed in chunk.seeds:
            noise = np.random.default_rng([seed, len(chunk.strategy)]).normal()
            value = scale.low + (0.5 + added + scatter * noise) * (scale.high - scale.low)
            yield from ((seed, step, "eval/mean_reward", value) for step in (100_000, 200_000))

    measured = outcomes("minatar", tmp_path, rows)
    games = ("Breakout", "Freeway", "Space Invaders")
    assert list(measured) == [f"{game}: {part}" for game in games for part in ("3 steps", "prioritized")]
    words = {True: "reproduced", False: "not reproduced"}
    expected = ["contested"] * 6 if reproduced is None else [words[holds] for holds in reproduced]
    assert list(measured.values()) == expected


@pytest.mark.parametrize("name", STUDIES)
def test_the_studies_can_be_trained(name):
    kinds = {
        (chunk.environment, chunk.learner.split(".")[0], chunk.strategy): chunk
        for chunk in plan(Spec.from_toml(catalog.find(name)))
    }
    for chunk in kinds.values():
        check_chunk(chunk)


@pytest.mark.parametrize(("name", "back"), [("none", 4), ("none-3", 8)])
def test_without_replay_each_step_is_learned_from_once(name, back):
    """Each is drawn with its whole return; the newest step's return would always be of one step."""
    spec = Spec.from_toml(catalog.find("minatar"))
    learner = spec.learners["dqn"].options | spec.overrides[name].learner
    assert (spec.strategies[name].type, learner["batch_size"]) == ("queue", learner["train_period"])
    n = 3 if name == "none-3" else 1
    scalar, flag = Field((), "float32"), Field((), "bool")
    fields = {"obs": scalar, "reward": scalar, "next_obs": scalar, "terminated": flag, "truncated": flag}
    buffer = ReplayBuffer(30, fields, sampler=Queue(), transforms=[NStep(n)], seed=0)
    for steps in range(1, 21):
        buffer.add(obs=steps, reward=1.0, next_obs=steps + 1, terminated=False, truncated=False)
        if steps >= learner["learning_starts"] and steps % learner["train_period"] == 0:
            batch = buffer.sample(learner["batch_size"])
            assert batch["obs"].tolist() == [steps - back + k for k in (1, 2, 3, 4)]
            assert batch["n_steps"].tolist() == [n] * 4
