"""Identity of results: it is stable, so that results stay valid, and does not depend on texts."""

from replaylab.study.catalog import shipped
from replaylab.study.plan import plan
from replaylab.study.spec.spec import Spec
from tests.study.tiny import table

KNOWN = {
    "quick": [
        "CartPole-v1.dqn.none.a6647976d531dd37",
        "CartPole-v1.dqn.uniform.67e8f8cc946ae37c",
        "CartPole-v1.dqn.prioritized.f633ad1202901e14",
        "CartPole-v1.dqn.combined.bc6698b2fbdf4dd9",
    ],
    "taxi": [
        "Taxi-v4.q_learning.none.b2d964b049948c0d",
        "Taxi-v4.q_learning.replay.44562e5e9fd89e7e",
        "Taxi-v4.q_learning.none_matched_updates.8b602165e7ba9803",
    ],
}
"""Results with these ids exist: another id means that every user's results are trained again."""


def test_ids_of_shipped_studies_are_those_of_existing_results():
    for name, ids in KNOWN.items():
        assert set(ids) <= {chunk.id for chunk in plan(Spec.from_toml(shipped()[name]))}


def test_texts_are_not_part_of_an_identity():
    asked = {"name": "gain", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}
    plain = Spec.from_table(table(contrasts=[asked]))
    texts = Spec.from_table(
        table(
            contrasts=[asked | {"sides": ["A", "B"], "answers": {"higher": "Yes."}}],
            answers={"lower": "No."},
            reference={"CartPole-v1": {"value": 500.0}},
            core_minutes=1.0,
            strategies__uniform__title="uniform replay",
            learners__dqn__title="DQN",
        )
    )
    assert texts.title_of("uniform") == "uniform replay"
    assert [p.identity for p in plan(texts)] == [p.identity for p in plan(plain)]
