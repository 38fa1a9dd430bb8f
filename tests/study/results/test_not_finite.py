"""Infinities and NaN in a study file come back from the folder as they are, and tell runs apart."""

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from rich.console import Console

from replaylab.commands.saved_runs import saved_chunk
from replaylab.commands.train import train_and_report
from replaylab.commands.train_command import TrainCommand
from replaylab.learners import QLearning
from replaylab.study import InProcess, Spec, Study
from replaylab.study.plan import plan
from replaylab.study.results.folder import StudyFolder
from replaylab.study.results.store import read_metadata
from tests.study.tiny import rows, study, table

INF, NAN = math.inf, math.nan
BOUNDED = "tests/Bounded-v0"


class Bounded(CartPoleEnv):
    """CartPole, with a bound of the reward that may be infinite."""

    def __init__(self, most, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.most = most

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, min(reward, self.most), *rest


gym.register(BOUNDED, entry_point=Bounded, max_episode_steps=20)


@dataclass(frozen=True)
class Clipped(QLearning):
    """A learner with bounds that may be infinite, or lacking."""

    most: float | None = None
    least: float | None = None


def bounded(folder, most=INF):
    strategies = {"uniform": {"type": "uniform"}}
    short = {"budget__steps": 60, "evaluation": {"every": 60, "episodes": 1}, "measures__every": 60}
    options = {BOUNDED: {"most": most}}
    return study(folder, environments=[BOUNDED], env_options=options, strategies=strategies, **short)


def with_learner(most, **changes):
    learner = {"type": f"{__name__}:Clipped", "batch_size": 8} | ({} if most is None else {"most": most})
    return table(environments=["Taxi-v4"], learners={"q": learner}, **changes)


def ids(of_study):
    return [chunk.id for chunk in of_study.chunks]


def test_a_study_with_an_infinite_option_reports(tmp_path, undrawn):
    infinite = bounded(tmp_path)
    assert infinite.run(executor=InProcess()).complete
    again = Study.from_folder(tmp_path)
    assert again.spec == infinite.spec
    assert ids(again) == ids(infinite)
    assert len(again.present) == 2
    np.testing.assert_equal(rows(again), rows(infinite))
    assert read_metadata(again.file_of(again.present[0]))["identity"]["env_options"] == {"most": INF}
    assert f"env_options.{BOUNDED}.most" in again.report(figure_files=False).read_text()
    assert again.run(executor=InProcess()).complete
    assert sorted(f.stem for f in (tmp_path / "runs").iterdir()) == sorted(ids(infinite)), "nothing was left to run"


def test_at_any_depth_of_any_table(tmp_path):
    odd = {"bounds": [-INF, INF, {"x": NAN}], "id": "CartPole-v1", "limit": INF}
    strategies = {
        "uniform": {"type": "uniform", "factors": {"bound": INF}},
        "own": {"type": "uniform", "learner": {"least": -INF}, "factors": {"bound": 1.0}},
    }
    contrast = {"name": "bound", "more": {"bound": INF}, "less": {"bound": 1.0}}
    learners = {"q": {"type": f"{__name__}:Clipped", "batch_size": 8, "vary": {"most": [0.5, INF, -INF]}}}
    parts = {"strategies": strategies, "learners": learners, "contrasts": [contrast]}
    tiny = study(tmp_path, environments=["odd"], env_options={"odd": odd}, **parts)
    StudyFolder(tiny.spec, tiny.folder).write_records()
    again = Study.from_folder(tmp_path)
    assert ids(again) == ids(tiny)
    assert repr(again.spec) == repr(tiny.spec), "as text, since NaN equals nothing"
    assert [learner.options["most"] for learner in again.spec.learners.values()] == [0.5, INF, -INF]
    assert again.spec.learner_of("own", "q.most-0.5").options["least"] == -INF


def test_what_is_not_finite_tells_runs_apart():
    """With an option of the environment, and with one of a part, for which None is another value than infinity."""
    specs = [Spec.from_table(with_learner(most)) for most in (None, INF, -INF, NAN)]
    specs += [Spec.from_table(table(env_options={"CartPole-v1": {"x": x}})) for x in (INF, -INF, NAN)]
    assert len({plan(spec)[0].id for spec in specs}) == len(specs)


def test_finite_values_are_part_of_the_identity_as_they_are():
    assert plan(Spec.from_table(with_learner(0.5)))[0].identity["learner"]["q"]["most"] == 0.5


def test_a_single_run_that_is_saved(tmp_path):
    options = {"learner_options": ("hidden=[8]",), "env_options": ("most=inf",)}
    chunk = TrainCommand(BOUNDED, seeds=1, steps=20, eval_every=20, eval_episodes=1, **options).chunk()
    train_and_report(chunk, Console(quiet=True), None, save=tmp_path / "run")
    assert saved_chunk(tmp_path / "run") == chunk
