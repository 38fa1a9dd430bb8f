"""Identity of a chunk: every setting that decides its numbers, and nothing else."""

import pytest

from replaylab.study import Spec
from replaylab.study.plan import Chunk, plan
from replaylab.study.spec.contrasts import resolve_contrasts
from tests.study.tiny import table


def ids(**changes):
    return [p.id for p in plan(Spec.from_table(table(**changes)))]


def test_the_grid_is_whole():
    chunks = plan(Spec.from_table(table(seeds=5)))
    assert [(p.strategy, p.seeds) for p in chunks] == [
        (strategy, seeds) for seeds in ((0, 1), (2, 3), (4,)) for strategy in ("uniform", "prioritized")
    ]
    assert len(set(ids(seeds=5))) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"budget__steps": 400},
        {"evaluation__every": 50},
        {"evaluation__episodes": 3},
        {"logging__every": 60},
        {"measures__every": 0},
        {"learners__dqn__gamma": 0.5},
        {"chunk_size": 4},
        {"seeds": [9, 8, 7, 6]},
        {"environments": ["CartPole-v0"]},
        {"env_options": {"CartPole-v1": {"sutton_barto_reward": True}}},
        {"budget": {"episodes": 300}},
    ],
    ids=str,
)
def test_what_changes_the_numbers_changes_the_id(change):
    assert not set(ids()) & set(ids(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"title": "other"},
        {"question": "?"},
        {"name": "other"},
        {"baseline": "prioritized"},
        {"learners__dqn__gamma": 0.99},
        {"strategies__prioritized__alpha": 0.6},
    ],
    ids=str,
)
def test_what_does_not_change_them_does_not(change):
    assert ids() == ids(**change)


def test_more_seeds_or_strategies_keep_what_is_there():
    more = ids(seeds=6, strategies__none={"type": "online"})
    assert set(ids()) < set(more)
    assert len(more) == 9


def test_one_strategy_changed_leaves_the_others():
    assert len(set(ids()) & set(ids(strategies__prioritized__alpha=0.7))) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"strategies__prioritized__transforms": [{"type": "n_step", "steps": 5}]},
        {"strategies__prioritized__learner": {"double": False}},
        {"strategies__prioritized__budget": {"steps": 500}},
    ],
    ids=str,
)
def test_what_a_strategy_does_otherwise_is_its_own(change):
    changed = [p for p in plan(Spec.from_table(table(**change))) if p.id not in ids()]
    assert {p.strategy for p in changed} == {"prioritized"}
    assert len(changed) == 2


def test_a_strategy_may_run_on_some_environments_only():
    spec = Spec.from_table(
        table(
            environments=["CartPole-v1", "Acrobot-v1"],
            strategies__prioritized={"type": "prioritized", "environments": ["Acrobot-v1"]},
        )
    )
    cells = {(p.environment, p.strategy) for p in plan(spec)}
    assert cells == {("CartPole-v1", "uniform"), ("Acrobot-v1", "uniform"), ("Acrobot-v1", "prioritized")}
    assert spec.runs == 12
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec


def test_a_learner_may_learn_some_environments_only():
    car = {"type": "dqn", "gamma": 0.98, "environments": ["MountainCar-v0"]}
    changes = {
        "environments": ["CartPole-v1", "MountainCar-v0"],
        "learners": {"car": car, "dqn": {"type": "dqn", "environments": ["CartPole-v1"]}},
        "contrasts": [{"name": "car", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}],
        "scores": {name: {"low": 0.0, "high": 1.0} for name in ("CartPole-v1", "MountainCar-v0")},
    }
    spec = Spec.from_table(table(**changes))
    cells = [(p.environment, p.learner) for p in plan(spec) if p.strategy == "uniform"]
    assert dict.fromkeys(cells) == dict.fromkeys([("CartPole-v1", "dqn"), ("MountainCar-v0", "car")])
    assert spec.runs == 16
    assert spec.environments_of("uniform") == ("CartPole-v1", "MountainCar-v0")
    (contrast,) = resolve_contrasts(spec)
    assert {(cell.environment, cell.learner) for cell in contrast.cells} == set(cells)
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec
    alone = {"type": "dqn", "gamma": 0.98}
    both = Spec.from_table(table(environments=["MountainCar-v0"], learners={"car": alone}))
    assert {p.id for p in plan(both)} == {p.id for p in plan(spec) if p.learner == "car"}


def test_an_n_step_return_has_the_learners_discount():
    changes = {"learners__dqn__gamma": 0.8, "strategies__uniform__transforms": [{"type": "n_step"}]}
    chunks = plan(Spec.from_table(table(**changes)))
    assert chunks[0].transforms[0].options == {"steps": 3, "gamma": 0.8, "last": []}
    assert chunks[1].transforms == ()


def test_an_id_is_a_file_name():
    (first, *_) = plan(Spec.from_table(table(environments=["ALE/Pong v5:x"])))
    assert first.id.startswith("ALE-Pong-v5-x.dqn.uniform.")
    assert "/" not in first.id


def test_a_chunk_travels_as_json():
    (first, *_) = plan(Spec.from_table(table()))
    assert Chunk.model_validate_json(first.model_dump_json()) == first


def test_fewer_and_more_seeds_find_what_is_there_again():
    present = []
    for seeds in (4, 10, 2, 10):
        spec = Spec.from_table(table(seeds=seeds, chunk_size=10))
        chunks_found = [chunk for chunk in plan(spec, present) if chunk.strategy == "uniform"]
        new = [chunk for chunk in chunks_found if chunk.identity not in present]
        assert [chunk.seeds for chunk in new] == {4: [(0, 1, 2, 3)], 10: [(4, 5, 6, 7, 8, 9)], 2: [(0, 1)]}.get(
            seeds, []
        )[: len(new)]
        present += [chunk.identity for chunk in new]
    assert new == []
