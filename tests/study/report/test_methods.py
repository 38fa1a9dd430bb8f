"""The methods of a report: how each strategy was trained."""

from replaylab.study.report import methods
from tests.study.tiny import pretended


def test_methods_list_how_strategies_differ(tmp_path):
    study = pretended(
        tmp_path,
        0.0,
        environments=["CartPole-v1", "short"],
        env_options={"short": {"id": "CartPole-v1", "max_episode_steps": 50}},
        strategies__three={
            "type": "uniform",
            "transforms": [{"type": "n_step", "steps": 3}],
            "learner": {"batch_size": 16, "optimizer": {"type": "sgd"}},
            "environments": ["short"],
            "budget": {"steps": 600},
        },
    )
    text = " ".join(methods.of(study).run)
    assert "Other budgets, in steps: three 600. Average returns end with the shortest budget of an" in text
    assert "Options of the environments. short: id CartPole-v1, max_episode_steps 50." in text
    assert "uniform: uniform, replace true, stratified false." in text
    assert (
        "three: uniform, replace true, stratified false; transform n_step, steps 3; learner batch_size 16, "
        "optimizer.type sgd; on short." in text
    )
