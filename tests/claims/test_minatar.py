"""Claims 7 to 9: what rows that were made up say about the published figures, and that the studies can be trained."""

import numpy as np
import pytest

from replaylab.claims import ReplicationOutcome
from replaylab.claims.minatar import components, curve, first_million
from replaylab.claims.minatar.components import SAID
from replaylab.claims.study_findings import only_for
from replaylab.replay import Field, NStep, Queue, ReplayBuffer
from replaylab.study import Study, catalog
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.plan import plan
from replaylab.study.spec.study_file import Spec
from tests.study.tiny import write_rows

REPRODUCED, NOT_REPRODUCED, CONTESTED = ReplicationOutcome
GAMES = {"Breakout": "Breakout", "Freeway": "Freeway", "Space Invaders": "SpaceInvaders"}
PARTS = {"3 steps": "uniform-3", "prioritized": "prioritized_as_published"}


def made_up(name, folder, rows_of):
    """Return a shipped study with the rows (seed, step, metric, value) that a function makes of each chunk."""
    study = Study(Spec.from_toml(catalog.find(name)), folder)
    write_rows(study, rows_of)
    return study


def with_scores(folder, gains, scatter=0.01):
    """Return `minatar` where a strategy in a game has a score of .5, and what `gains` adds to it."""
    spec = Spec.from_toml(catalog.find("minatar"))

    def rows(chunk):
        scale = spec.scores[chunk.environment]
        gain = gains.get((chunk.environment, chunk.strategy), 0.0)
        for seed in chunk.seeds:
            rng = np.random.default_rng([seed, len(chunk.strategy)])
            score = 0.5 + gain + scatter * rng.normal()
            value = scale.low + score * (scale.high - scale.low)
            yield from ((seed, step, "eval/mean_reward", value) for step in (100_000, 200_000))

    return made_up("minatar", folder, rows)


def with_returns(folder, last):
    """Return `minatar-published` where the last 100 episodes of a seed have a mean return of `last` + its place.

    With Adam it is 1 less.
    """

    def rows(chunk):
        mean = last if chunk.strategy == "uniform-rmsprop" else last - 1.0
        for seed in chunk.seeds:
            returns = [0.0] * 50 + [mean - 1.0, mean + 1.0] * 50
            yield from ((seed, 10 * at, "rollout/ep_rew", value + seed / 100) for at, value in enumerate(returns, 1))

    return made_up("minatar-published", folder, rows)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Return the result of claim 7 if each part adds as much to DQN, by the sum."""

    def of(gain, scatter=0.01):
        added = {(f"replaylab/MinAtar-{game}-v1", s): gain for game in GAMES.values() for s in PARTS.values()}
        study = with_scores(tmp_path_factory.mktemp("made"), added, scatter)
        return {one.what.removesuffix(": difference in score"): one for one in components.measure(study)}

    return {"gain": of(0.3), "loss": of(-0.3), "none": of(0.0), "noise": of(0.0, scatter=0.6)}


def test_each_game_and_part_is_a_finding(verdicts):
    assert list(verdicts["gain"]) == list(SAID) == [f"{game}: {part}" for game in GAMES for part in PARTS]


@pytest.mark.parametrize(
    ("finding", "gain", "none", "loss"),
    [
        ("Breakout: 3 steps", REPRODUCED, NOT_REPRODUCED, NOT_REPRODUCED),
        ("Breakout: prioritized", REPRODUCED, REPRODUCED, NOT_REPRODUCED),
        ("Freeway: 3 steps", NOT_REPRODUCED, REPRODUCED, REPRODUCED),
        ("Freeway: prioritized", NOT_REPRODUCED, NOT_REPRODUCED, REPRODUCED),
        ("Space Invaders: 3 steps", REPRODUCED, NOT_REPRODUCED, NOT_REPRODUCED),
        ("Space Invaders: prioritized", REPRODUCED, REPRODUCED, NOT_REPRODUCED),
    ],
)
def test_verdicts_are_those_of_the_rows(verdicts, finding, gain, none, loss):
    assert [verdicts[truth][finding].verdict for truth in ("gain", "none", "loss")] == [gain, none, loss]
    for truth, size in (("gain", 0.3), ("none", 0.0), ("loss", -0.3)):
        found = verdicts[truth][finding]
        assert found.low <= found.ours <= found.high
        assert abs(found.ours - size) < 0.03


def test_what_rows_leave_open_is_contested(verdicts):
    assert {one.verdict for one in verdicts["noise"].values()} == {CONTESTED}
    assert all(one.low < 0.0 < one.high for one in verdicts["noise"].values())


@pytest.mark.parametrize(("last", "expected"), [(8.0, NOT_REPRODUCED), (8.25, REPRODUCED), (9.0, REPRODUCED)])
def test_the_published_curve_is_held_against_the_last_hundred_episodes(tmp_path, last, expected):
    found, by_adam = curve.measure(with_returns(tmp_path, last))
    assert (found.verdict, by_adam.verdict) == (expected, None)
    assert found.ours == pytest.approx(last + np.arange(10).mean() / 100)
    assert by_adam.ours == pytest.approx(found.ours - 1.0)
    assert found.low < found.ours < found.high
    assert "after 500,000 frames, RMSprop" in found.what


@pytest.mark.parametrize(("share", "expected"), [(0.9, NOT_REPRODUCED), (0.99, REPRODUCED), (2.0, REPRODUCED)])
def test_the_first_million_is_held_against_the_mean_of_its_episodes(tmp_path, share, expected):
    """Of a seed three episodes, whose mean is the share of what was published, some percents more or less by seed."""

    def rows(chunk):
        game = chunk.environment.removeprefix("replaylab/MinAtar-").removesuffix("-v1")
        mean = share * first_million.PUBLISHED[game]
        for seed in chunk.seeds:
            returns = mean * (1.0 + (seed - 4.5) / 100.0) * np.array([0.0, 1.0, 2.0])
            yield from ((seed, 10 * at, "rollout/ep_rew", value) for at, value in enumerate(returns, 1))
            yield seed, 30, "eval/mean_reward", 1e6

    found = list(first_million.measure(made_up("minatar-million", tmp_path, rows)))
    assert [one.what.split(":")[0] for one in found] == list(first_million.PUBLISHED)
    for one, published in zip(found, first_million.PUBLISHED.values(), strict=True):
        assert one.ours == pytest.approx(share * published)
        assert one.low < one.ours < one.high
        assert one.verdict is expected


@pytest.mark.parametrize("name", ["minatar", "minatar-published", "minatar-million"])
def test_every_chunk_of_the_studies_can_be_trained(name):
    for chunk in plan(Spec.from_toml(catalog.find(name))):
        check_chunk(chunk)


@pytest.mark.parametrize(("name", "back"), [("none", 4), ("none-3", 8)])
def test_without_replay_each_step_is_learned_from_once_with_its_whole_return(name, back):
    """Check the draws of the study's strategies; the newest step's return would always be of one step."""
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
            assert batch["obs"].tolist() == [steps - back + at for at in (1, 2, 3, 4)]
            assert batch["n_steps"].tolist() == [n] * 4


def test_verdicts_ignore_other_runs_in_the_study_folder(tmp_path):
    study = with_scores(tmp_path, {}, scatter=0.1)
    whole = list(components.measure(study))
    (other,) = (one for one in study.chunks if one.strategy == "lap" and "Freeway" in one.environment)
    study.file_of(other).unlink()
    assert list(components.measure(study)) == whole
    left = Study.from_folder(tmp_path)
    assert (left.spec, len(left.present)) == (study.spec, len(study.chunks) - 1)


def test_of_a_study_that_is_not_there_whole_only_what_the_claim_needs_is_run(tmp_path):
    study = Study(Spec.from_toml(catalog.find("minatar")), tmp_path)
    needed = only_for(study, SAID)
    assert set(needed.spec.strategies) == {"uniform", *PARTS.values()}
    assert [one.name for one in needed.spec.contrasts] == list(SAID)
    assert len(needed.chunks) == 9
    assert {p.id for p in needed.chunks} < {p.id for p in study.chunks}
    assert Spec.from_table(needed.spec.model_dump(mode="json")) == needed.spec
