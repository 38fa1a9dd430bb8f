"""Strategies whose scores, losses or errors come from the learner, in whole studies."""

from tests.study.tiny import run_here

STRATEGIES = {
    "uniform": {"type": "uniform"},
    "laber": {"type": "laber", "m": 2},
    "relo": {"type": "relo", "beta": 0.4},
    "steps": {"type": "laber", "m": 2, "transforms": [{"type": "n_step", "steps": 3}]},
}


def test_a_study_of_them_runs_and_each_draws_otherwise(tmp_path):
    made = run_here(tmp_path, strategies=STRATEGIES, seeds=2, budget__steps=200)
    losses = {curve.strategy: tuple(curve.values[:, -1]) for curve in made.curves("train/loss")}
    assert losses.keys() == STRATEGIES.keys()
    assert len(set(losses.values())) == len(STRATEGIES)
    (spent,) = {tuple(curve.values[:, -1]) for curve in made.curves("train/updates")}
    assert spent == (181.0, 181.0), "all learn equally often, from step 20 on"
