"""The distance to the optimal values, in a study."""

import pytest

from replaylab.errors import SpecError
from replaylab.study import InProcess, Study
from replaylab.study.plan import plan
from replaylab.study.spec.spec import Spec


def table(environment="CliffWalking-v1", **evaluation):
    return {
        "name": "cliff",
        "environments": [environment],
        "seeds": 2,
        "baseline": "none",
        "budget": {"steps": 200},
        "evaluation": {"every": 100, "episodes": 1, **evaluation},
        "env_options": {environment: {"max_episode_steps": 50}},
        "learners": {"q": {"type": "dqn"}},
        "strategies": {"none": {"type": "online"}},
    }


def test_it_identifies_a_run_only_where_a_study_records_it(tmp_path):
    with_it, without = (Spec.from_table(table(value_error=on)) for on in (True, False))
    assert plan(without)[0].identity == plan(Spec.from_table(table()))[0].identity
    assert plan(with_it)[0].identity == plan(without)[0].identity | {"value_error": True}
    study = Study(with_it, tmp_path)
    assert study.run(executor=InProcess()).complete
    rows = study.results().filter("metric = 'eval/value_error'").fetchall()
    assert len(rows) == 2 * 2


def test_an_environment_without_a_table_is_refused(tmp_path):
    study = Study(Spec.from_table(table("CartPole-v1", value_error=True)), tmp_path)
    with pytest.raises(SpecError, match=r"CartPole-v1 · q · none .* cannot be run: `value_error` needs exact values"):
        study.run(executor=InProcess())
    assert not list(tmp_path.glob("runs/*"))
