"""One Gymnasium id with several sets of options, each under a name."""

import pytest

from replaylab.errors import SpecError
from replaylab.study import InProcess, Spec, Study
from replaylab.study.plan import plan
from tests.study.tiny import rows, study, table

TWO = {
    "environments": ["CliffWalking-v1", "short", "long"],
    "env_options": {
        "short": {"id": "CliffWalking-v1", "max_episode_steps": 5},
        "long": {"id": "CliffWalking-v1", "max_episode_steps": 40},
        "CliffWalking-v1": {"max_episode_steps": 5},
    },
    "learners": {"q": {"type": "q_learning"}},
    "strategies": {"uniform": {"type": "uniform"}},
    "scores": {"short": {"low": -100.0, "high": 0.0}},
    "logging": {"every": 50, "visits": True},
    "budget": {"steps": 100},
    "evaluation": {"every": 50, "episodes": 1},
    "seeds": 2,
}


def test_names_stand_for_an_id_with_its_own_options(tmp_path, undrawn):
    study = Study(Spec.from_table(table(**TWO)), tmp_path)
    assert study.run(executor=InProcess()).complete
    lengths = {c.environment: c.values[:, -1].tolist() for c in study.curves("eval/mean_ep_length")}
    assert lengths["short"] == lengths["CliffWalking-v1"] == [5.0, 5.0]
    assert min(lengths["long"]) > 5
    columns = rows(study)
    where = {name: [i for i, e in enumerate(columns["environment"]) if e == name] for name in TWO["environments"]}
    values = {name: [repr(columns["value"][i]) for i in where[name]] for name in where}
    assert values["short"] == values["CliffWalking-v1"] != values["long"]
    page = study.report(figure_files=False).read_text()
    assert "Share of the time in each cell" in page, "the map of a name is that of its id"
    assert "env_options.short.id" in page


def test_a_name_without_an_id_stays_what_it_was():
    """Ids of stored results: with options, and without."""
    spec = Spec.from_table(table(env_options={"CartPole-v1": {"max_episode_steps": 50}}))
    (chunk, *_) = plan(spec)
    assert chunk.identity["environment"] == "CartPole-v1"
    assert chunk.identity["env_options"] == {"max_episode_steps": 50}
    assert chunk.made_of == ("CartPole-v1", {"max_episode_steps": 50})
    named = plan(Spec.from_table(table(**TWO)))
    assert len({p.id for p in named}) == len(named)
    assert named[1].configuration().env_id == "CliffWalking-v1"


ENVIRONMENT = """
import gymnasium as gym

class Short(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {{}}

    def step(self, action):
        return 1, {reward}, True, False, {{}}

gym.register("Short-v0", Short)
"""


def test_the_code_of_a_custom_environment_identifies_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "short_envs.py"
    module.write_text(ENVIRONMENT.format(reward=1.0))
    learner = {"type": "q_learning", "batch_size": 4, "learning_starts": 4}
    changes = {"environments": ["short_envs:Short-v0"], "learners": {"table": learner}, "seeds": 2}
    first = study(tmp_path / "results", **changes)
    assert first.run(executor=InProcess(), show=False).complete
    assert study(tmp_path / "results", **changes).present == first.chunks
    assert Study.from_folder(tmp_path / "results").chunks == first.chunks  # without the module, too
    module.write_text(ENVIRONMENT.format(reward=2.0))
    again = study(tmp_path / "results", **changes)
    assert again.present == []
    assert len(again.chunks) == 2
    with pytest.raises(
        SpecError, match=r"the module short_envs \(.*short_envs.py\) has changed since this run was defined"
    ):
        first.chunks[0].configuration()
    named = {"env_options": {"mine": {"id": "short_envs:Short-v0"}}, "environments": ["mine"]}
    assert set(study(tmp_path / "b", **changes | named).spec.environment_code) == {"mine"}
    assert "environment_code" not in study(tmp_path / "c").chunks[0].identity
