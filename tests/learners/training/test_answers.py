"""Invalid results of agents, and of environments' metrics: an error names the method and its rule."""

from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar

import numpy as np
import pytest

from replaylab.errors import ConfigError, DtypeError, ShapeError
from replaylab.learners import DQN, TrainingConfig, train
from replaylab.learners.api.agent_laber import AgentLaBER
from replaylab.learners.api.protocols import Probe, Update
from replaylab.replay import Prioritized, Schedule, Uniform

SEEDS = [0, 1]


@dataclass(frozen=True, kw_only=True)
class Odd(DQN):
    """Agents one of whose methods answers something else."""

    hidden: tuple[int, ...] = (4,)
    batch_size: int = 4
    learning_starts: int = 8
    train_period: int = 1
    device: str = "cpu:0"

    answers: ClassVar[dict] = {}

    def agents(self, observation_space, action_space, seeds):
        agents = super().agents(observation_space, action_space, seeds)
        for name, answer in self.answers.items():
            setattr(agents, name, lambda *args, answer=answer, **kwargs: answer)
        return agents


def trained(learner=None, sampler=None, answers=None, **options):
    kind = type("Odd", (Odd,), {"answers": answers or {}})
    options = {"total_steps": 24, "eval_every": None, "log_every": 4} | options
    return train(TrainingConfig("CartPole-v1", learner or kind(), sampler or Uniform(), **options), SEEDS)


WRONG = ["x", None, 1j, date(2026, 1, 1), np.zeros(3), np.full((2, 4), 1j), np.full((2, 4), "a"), [[1.0], [1.0, 2.0]]]


@pytest.mark.parametrize("answer", WRONG, ids=repr)
def test_actions(answer):
    with pytest.raises((DtypeError, ShapeError), match=r"^`act` of \w+ must return actions, numbers of shape \(2, 1, "):
        trained(answers={"act": answer})


@pytest.mark.parametrize("answer", [*WRONG[:4], np.zeros((2, 4))], ids=repr)
def test_updates(answer):
    with pytest.raises(ConfigError, match=r"^`update` of \w+ must return an Update, but returned"):
        trained(answers={"update": answer})


@pytest.mark.parametrize("error", WRONG, ids=repr)
@pytest.mark.parametrize("sampler", [Uniform(), Prioritized()], ids=["unfed", "fed"])
def test_errors_of_updates(error, sampler):
    wanted = r"^`update` of \w+ must return an Update with `td_error`, numbers of shape \(2, 4\), but returned "
    with pytest.raises((DtypeError, ShapeError), match=wanted):
        trained(sampler=sampler, answers={"update": Update(error)})


@pytest.mark.parametrize("error", WRONG, ids=repr)
def test_probes(error):
    wanted = r"^`probe` of \w+ must return a Probe with `td_error` \(2, 16\), one a row, and `gradient` \(2, P\), but"
    for answer in (Probe(error, np.zeros((2, 3))), error):
        with pytest.raises((ConfigError, DtypeError, ShapeError), match=wanted):
            trained(sampler=AgentLaBER(), answers={"probe": answer})


@pytest.mark.parametrize("q", WRONG, ids=repr)
def test_values(q):
    with pytest.raises((DtypeError, ShapeError), match=r"^`q_values` of \w+ must return the values of all actions"):
        trained(answers={"q_values": q, "act": np.zeros((2, 1), int)}, eval_every=4, eval_episodes=1, held_out=3)


@pytest.mark.parametrize("rate", ["0.5", b"0.5", None, 1j, np.datetime64("2026-01-01"), np.zeros(3), [[1.0], [1.0, 2]]])
def test_metrics(rate):
    with pytest.raises(ConfigError, match=r"^`rollout/exploration_rate` must be a number, or one for each of the 2"):
        trained(answers={"exploration_metrics": {"rollout/exploration_rate": rate}})


@dataclass(frozen=True)
class Broken(Schedule):
    value: object = field(default=np.nan)

    def __call__(self, progress):
        return self.value if progress else 0.5

    @property
    def bounds(self):
        return (0.25, 0.75)


@pytest.mark.parametrize("name", ["epsilon", "learning_rate"])
@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@pytest.mark.parametrize("value", ["x", None, 1j, np.nan, 0.8, -1.0], ids=repr)
def test_schedules_of_learners(name, device, value):
    learner = DQN(hidden=(4,), batch_size=4, learning_starts=8, device=device, **{name: Broken(value)})
    with pytest.raises(ConfigError, match=r"^the schedule Broken, called with 0\.0\d+, must return a number within"):
        trained(learner)
