"""The scripts in examples/published: their protocols, and their figures at small sizes."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from examples.published import (
    bit_flip,
    blind_cliffwalk,
    cleanrl_returns,
    cliff_walking,
    minatar_returns,
    unbiased_weights,
)
from examples.published.figures import Figure, show, t_interval

from replaylab.envs import BitFlipEnv, BlindCliffwalkEnv
from replaylab.learners import DQN, Metrics
from replaylab.replay import LAP, Greedy, Prioritized
from replaylab.study import Spec, Study, catalog
from tests.study.tiny import write_rows


def test_figures_are_printed_with_their_verdicts(capsys):
    agreeing = Figure("a share", "about 1", 1.25, True, (1.0, 1.5), "range of 2 runs")
    assert show([agreeing, Figure("more", "", 3.0, None)]) == 0
    assert show([agreeing, Figure("a count", "12,345", 54321.0, False)]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "a share about 1 1.25 [1, 1.5] (range of 2 runs) reproduced"
    assert lines[2] == "more – 3 (exact) –"
    assert lines[5] == "a count 12,345 5.432e+04 (exact) not reproduced"


def test_interval_is_students():
    low, high = t_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (low + high) / 2 == 2.5
    assert high - 2.5 == pytest.approx(3.182446 * np.sqrt(5 / 3) / 2, rel=1e-6)  # t of three degrees of freedom


class TestCliffWalking:
    def test_figures_of_the_source_are_exact(self):
        figures = list(cliff_walking.figures())
        assert [round(figure.value, 1) for figure in figures] == [-13.0, -50.8, -20.7]
        assert all(figure.agrees for figure in figures)

    def test_other_exploration_gives_other_figures(self):
        assert [figure.agrees for figure in cliff_walking.figures(epsilon=0.2)] == [True, False, False]


class TestBlindCliffwalk:
    @pytest.mark.parametrize("n", [1, 2, 5, 10])
    def test_memory_holds_each_pair_as_often_as_random_play(self, n):
        steps = blind_cliffwalk.memory(n, np.random.default_rng(0))
        assert len(steps["obs"]) == 2 ** (n + 1) - 2
        for state in range(n):
            for action in range(2):
                assert ((steps["obs"] == state) & (steps["action"] == action)).sum() == 2 ** (n - 1 - state)
        assert steps["reward"].sum() == 1.0
        assert steps["terminated"].sum() == 2**n  # one end a sequence

    def test_memory_is_played_in_the_environment(self):
        n, steps = 5, blind_cliffwalk.memory(5, np.random.default_rng(0))
        env = BlindCliffwalkEnv(n=n)
        obs, _ = env.reset(seed=0)
        for row in range(2 ** (n + 1) - 2):
            next_obs, reward, terminated, truncated, _ = env.step(steps["action"][row])
            played = {"obs": obs, "reward": reward, "next_obs": next_obs, "terminated": terminated}
            assert played == {name: steps[name][row] for name in played}
            obs = env.reset()[0] if terminated or truncated else next_obs

    @pytest.mark.parametrize("n", [2, 7])
    def test_exact_values_are_powers_of_the_discount(self, n):
        expected = np.zeros((n, 2))
        for state in range(n):
            expected[state, state % 2] = (1.0 - 1.0 / n) ** (n - 1 - state)
        np.testing.assert_allclose(blind_cliffwalk.exact_values(n), expected, rtol=1e-12, atol=1e-15)

    def test_replicas_equal_single_runs(self):
        sampler = blind_cliffwalk.SAMPLERS["uniform"]
        together = blind_cliffwalk.updates(4, sampler, [5, 6, 7])
        assert together.tolist() == [blind_cliffwalk.updates(4, sampler, [seed])[0] for seed in (5, 6, 7)]

    def test_greedy_replays_every_transition_first(self):
        """All new transitions have the priority 1, so none can converge before each was seen once."""
        assert (blind_cliffwalk.updates(6, Greedy(), range(3)) >= 2**7 - 2).all()

    def test_independent_figures_are_reproduced_at_four_states(self):
        figures = list(blind_cliffwalk.figures(sizes=(4,)))
        assert [figure.agrees for figure in figures] == [True, None, None, True, True, True]
        assert [figure.value for figure in figures[:5]] == [351.5, 150.0, 176.5, 99.0, 93.5]

    @pytest.mark.slow
    def test_ratios_are_reproduced_at_eight_states(self):
        *_, uniform, oracle = blind_cliffwalk.figures(sizes=(8,))
        assert (round(uniform.value, 1), round(oracle.value, 2)) == (13.3, 4.85)
        assert uniform.agrees
        assert oracle.agrees

    @pytest.mark.parametrize(("runs", "low", "high"), [(10, 2, 9), (40, 14, 27)])
    def test_median_interval_has_its_level(self, runs, low, high):
        """Order statistics k and N + 1 − k hold the median with the chance of k to N − k heads in N tosses."""
        assert blind_cliffwalk.median_interval(np.arange(runs, 0, -1)) == (low, high)
        assert sum(math.comb(runs, heads) for heads in range(low, runs - low + 1)) / 2**runs >= 0.95
        assert sum(math.comb(runs, heads) for heads in range(low + 1, runs - low)) / 2**runs < 0.95


class TestBitFlip:
    def test_stored_steps_are_those_of_the_environment(self):
        n, seeds = 4, [0]
        env = BitFlipEnv(n=n)
        agents = bit_flip.DEEP_Q.agents(bit_flip.goal_space(n), env.action_space, seeds)
        buffer = bit_flip.buffer_of(n, seeds, hindsight=False, cycles=1)
        starts, explore = ([np.random.default_rng([seed, kind]) for seed in seeds] for kind in (2, 3))
        reached = bit_flip.play(agents, n, bit_flip.EPISODES, starts, explore, buffer)
        stored = buffer.get(np.arange(len(buffer))[None])
        before, after = stored["obs"]["observation"], stored["next_obs"]["achieved_goal"]
        flipped = np.arange(n) == stored["action"][..., None]
        np.testing.assert_array_equal(after, np.where(flipped, 1 - before, before))
        goal = stored["next_obs"]["desired_goal"]
        np.testing.assert_array_equal(stored["terminated"], (after == goal).all(-1))
        np.testing.assert_array_equal(stored["reward"], env.compute_reward(after, goal, {}))
        assert stored["terminated"].sum(1).tolist() == reached.tolist()
        assert ((stored["terminated"] ^ stored["truncated"]).sum(1) == bit_flip.EPISODES).all()

    def test_batches_hold_goals_of_hindsight_only_where_asked(self):
        for hindsight in (False, True):
            agents = bit_flip.DEEP_Q.agents(bit_flip.goal_space(6), BitFlipEnv(n=6).action_space, [0])
            buffer = bit_flip.buffer_of(6, [0], hindsight, cycles=1)
            bit_flip.play(agents, 6, bit_flip.EPISODES, [np.random.default_rng(0)], buffer=buffer)
            assert ("relabelled" in buffer.sample(500)) == hindsight

    def test_hindsight_learns_five_bits(self):
        (figure,) = bit_flip.figures(plan=[(True, (5,))], seeds=(0, 1), cycles=60)
        assert figure.agrees
        assert figure.interval[0] >= 0.95

    def test_no_learning_is_no_success(self):
        """After a single cycle nobody has learned 14 bits; the claim of hindsight would then not be reproduced."""
        figures = bit_flip.figures(plan=[(True, (14,)), (False, (14,))], seeds=(0,), cycles=1)
        assert [figure.agrees for figure in figures] == [False, True]


class TestCleanrlReturns:
    def test_figure_is_the_mean_of_the_last_100_episodes(self):
        returns = np.concatenate([np.zeros(50), np.arange(100.0)])
        columns = {
            "seed": np.repeat([4, 7], 150),
            "step": np.tile(np.arange(150), 2),
            "metric": np.full(300, "rollout/ep_rew"),
            "value": np.concatenate([returns, returns + 1.0]),
        }
        assert cleanrl_returns.final_returns(Metrics(columns), [4, 7]).tolist() == [49.5, 50.5]

    def test_a_hundredth_of_the_budget_does_not_suffice(self):
        settings: DQN = dataclasses.replace(cleanrl_returns.SETTINGS, learning_starts=128)
        cartpole = {"CartPole-v1": cleanrl_returns.PUBLISHED["CartPole-v1"]}
        (figure,) = cleanrl_returns.figures(cartpole, seeds=(0, 1), steps=1_000, settings=settings)
        assert not figure.agrees
        assert 8.0 < figure.value < 100.0


def with_training_returns(name, results, returns_of):
    """Write a shipped study with the training returns that a function makes of each chunk and seed."""

    def rows(chunk):
        for seed in chunk.seeds:
            yield from ((seed, 10 * k, "rollout/ep_rew", y) for k, y in enumerate(returns_of(chunk, seed), 1))
            yield seed, 10_000, "eval/mean_reward", 1e6

    write_rows(Study(Spec.from_toml(catalog.find(name)), results / name), rows)


@pytest.mark.parametrize(
    ("last", "share", "agree"), [(8.0, 0.9, False), (8.25, 0.99, True), (9.0, 2.0, True)], ids=["less", "near", "more"]
)
def test_minatar_returns_are_held_against_the_published(tmp_path, last, share, agree):
    """The last hundred episodes have the mean `last`, by Adam 1 less; a million frames a share of the published."""

    def last_hundred(chunk, seed):
        mean = last - (chunk.strategy == "uniform") + seed / 100
        return [0.0] * 50 + [mean - 1.0, mean + 1.0] * 50

    def million(chunk, seed):
        game = chunk.environment.removeprefix("replaylab/MinAtar-").removesuffix("-v1")
        mean = share * minatar_returns.MILLION[game] * (1.0 + (seed - 4.5) / 100.0)
        return [0.0, mean, 2.0 * mean]

    with_training_returns("minatar-published", tmp_path, last_hundred)
    with_training_returns("minatar-million", tmp_path, million)
    rmsprop, adam, *games = minatar_returns.figures(tmp_path)
    assert (rmsprop.agrees, adam.agrees) == (agree, None)
    assert rmsprop.value == pytest.approx(last + 0.045)
    assert adam.value == pytest.approx(rmsprop.value - 1.0)
    assert [figure.agrees for figure in games] == [agree] * 3
    for figure, published in zip(games, minatar_returns.MILLION.values(), strict=True):
        assert figure.value == pytest.approx(share * published)
        assert figure.interval[0] < figure.value < figure.interval[1]


N = 96
EVEN = np.full((1, N), 1.0 / N)


@pytest.fixture(scope="module")
def gradients():
    return unbiased_weights.Gradients(N, seed=1)


class TestUnbiasedWeights:
    def test_gradient_is_that_of_finite_differences(self, gradients):
        weights = np.linspace(0.0, 1.0, N)
        gradient = gradients.of(unbiased_weights.huber, weights[None])[0]
        last = list(gradients.online.parameters())[-1]  # the output biases, the last two numbers
        q, td_error = gradients.taken().detach(), gradients.td_error
        for action, slope in enumerate(gradient[-2:]):
            losses = []
            for shift in (1e-6, -1e-6):
                with torch.no_grad():
                    last[action] += shift
                    moved = td_error - (gradients.taken() - q)
                    last[action] -= shift
                losses.append((torch.from_numpy(weights) * unbiased_weights.huber(moved)).sum().item())
            assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4)

    def test_td_errors_are_on_both_sides_of_one(self, gradients):
        size = gradients.td_error.abs()
        assert (size > 1.0).sum() >= N / 10
        assert (size < 1.0).sum() >= N / 10

    @pytest.mark.parametrize("beta", [0.0, 0.5])
    def test_smaller_weights_are_biased(self, beta, gradients):
        sampler = Prioritized(beta=beta, normalize="none")
        distribution, weights = unbiased_weights.distribution_and_weights(gradients, sampler, 0)
        uniform = gradients.of(unbiased_weights.squared, EVEN)
        weighted = gradients.of(unbiased_weights.squared, (distribution * weights)[None])
        assert unbiased_weights.error(weighted, uniform) > 1e-2

    def test_lap_differs_from_huber_under_uniform_draws(self, gradients):
        distribution, weights = unbiased_weights.distribution_and_weights(gradients, LAP(0.4), 0)
        assert (weights == 1.0).all()
        lap = gradients.of(unbiased_weights.huber, distribution[None])
        assert unbiased_weights.error(lap, gradients.of(unbiased_weights.huber, EVEN)) > 1e-2

    def test_drawn_batches_without_weights_are_biased(self, gradients):
        """The interval of 4.9 standard errors excludes 1, so the check by draws can fail."""
        truth = gradients.of(unbiased_weights.squared, EVEN)[0]
        along = gradients.of(unbiased_weights.squared, np.eye(N)) @ truth / (truth @ truth)
        mean, deviation = unbiased_weights.drawn(gradients.buffer(unbiased_weights.BIASED, 0), along, 500)
        assert abs(mean - 1.0) > 4.9 * deviation

    def test_claim_is_reproduced(self):
        assert all(figure.agrees for figure in unbiased_weights.figures(steps=N, batches=500))
