"""`PrioritizedDatasetSampler`: exact draws, ranks that share one draw, resumed runs, loaders, and invalid arguments."""

import io

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, StackDataset

from replaylab.errors import ConfigError, EmptyBufferError, IdError, SnapshotError
from replaylab.replay import LAP, EpisodeEnds, Greedy, Linear, Mixture, Priorities, Prioritized, RankBased, Recency
from replaylab.torch import PrioritizedDatasetSampler
from tests.replay.guarantees.chi2 import assert_distribution
from tests.senseless import SEED, Call, wrongs

N, B, W = 53, 8, 3
ITEMS = range(N)
ERRORS = np.random.default_rng(0).exponential(size=N)


def fed(sampler):
    """The sampler after feedback for all items, one of which has priority 0."""
    sampler.update_priorities(ITEMS, ERRORS)
    sampler.update_priorities([7], priority=0.0)
    return sampler


@pytest.mark.parametrize(
    "strategy",
    [
        Prioritized(beta=0.4),
        Prioritized(alpha=1.0, beta=0.4, stratified=False),
        LAP(),
        RankBased(beta=0.4),
        Mixture((LAP(), Prioritized(beta=0.4))),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
class TestProbabilities:
    """Each test rejects at most twice, at p < 1e-9; seed 1."""

    def test_all_rows_follow_the_sampling_distribution(self, strategy):
        sampler = fed(PrioritizedDatasetSampler(ITEMS, B, sampler=strategy, num_samples=60_000, seed=1))
        counts = np.bincount(list(sampler), minlength=N)
        assert counts[7] == 0
        assert_distribution(counts, sampler.priorities.probabilities(ITEMS, batch_size=B))

    def test_first_rows_of_draws_follow_it_on_each_rank(self, strategy):
        """So probabilities are exact if the loader's batches are not the sampler's."""
        options = {"sampler": strategy, "num_samples": 160_000, "rank": 1, "world_size": W, "seed": 1}
        sampler = fed(PrioritizedDatasetSampler(ITEMS, B, **options))
        counts = np.bincount(list(sampler)[::B], minlength=N)
        assert_distribution(counts, sampler.priorities.probabilities(ITEMS, batch_size=B * W))


def test_ranks_share_each_draw_of_one_replay():
    """With feedback gathered from all ranks; the draw is that of `Priorities` with the same seed."""
    priorities = Priorities(N, sampler=Prioritized(beta=0.4), seed=3)
    priorities.extend(N)
    samplers = [PrioritizedDatasetSampler(ITEMS, B, rank=rank, world_size=W, seed=3) for rank in range(W)]
    assert [len(sampler) for sampler in samplers] == [18] * W
    loaders = [DataLoader(ITEMS, batch_size=B, sampler=sampler) for sampler in samplers]
    for _ in range(2):
        for batches in zip(*loaders, strict=True):
            gathered = torch.cat(batches).numpy()
            expected = priorities.sample(len(gathered))
            assert {len(batch) for batch in batches} == {len(gathered) // W}
            np.testing.assert_array_equal(np.sort(gathered), np.sort(expected.id))
            np.testing.assert_array_equal(samplers[0].weights(expected.id), expected.weight)
            for replay in (priorities, *samplers):
                replay.update_priorities(gathered, np.cos(gathered))
        samplers[0].load_state_dict(samplers[2].state_dict())  # any rank's state is that of all


@pytest.mark.parametrize("place", ["sampler", "batch_sampler"])
def test_loaders_take_it(place):
    sampler = PrioritizedDatasetSampler(ITEMS, B, seed=0)
    options = {"batch_size": B, "sampler": sampler}
    if place == "batch_sampler":
        options = {"batch_sampler": BatchSampler(sampler, B, drop_last=True)}
    squares = [item**2 for item in ITEMS]
    loader = DataLoader(StackDataset(ITEMS, squares), **options)
    batches = list(loader)
    assert len(batches) == len(loader) == 6 + (place == "sampler")
    assert all((index**2 == square).all() for index, square in batches)


def test_without_workers_feedback_changes_the_next_batch():
    sampler = PrioritizedDatasetSampler(ITEMS, B, seed=0)
    for number, batch in enumerate(DataLoader(ITEMS, batch_size=B, sampler=sampler)):
        assert number == 0 or (batch == 5).all()
        sampler.update_priorities(ITEMS, priority=1.0 * (np.arange(N) == 5))


def test_an_epoch_ends_and_the_next_continues():
    one_epoch = PrioritizedDatasetSampler(ITEMS, B, num_samples=2 * 5 * B, seed=0)
    two_epochs = PrioritizedDatasetSampler(ITEMS, B, num_samples=5 * B, seed=0)
    first = list(two_epochs)
    resumed = PrioritizedDatasetSampler(ITEMS, B, num_samples=5 * B)
    resumed.load_state_dict(two_epochs.state_dict())
    assert first + list(two_epochs) == first + list(resumed) == list(one_epoch)


def test_weights_have_the_shape_and_are_of_the_last_draw():
    sampler = fed(PrioritizedDatasetSampler(ITEMS, B, sampler=Prioritized(beta=Linear(0.0, 1.0)), seed=0))
    sampler.progress = 1.0
    index = torch.tensor(list(sampler))
    weights = sampler.weights(index.reshape(1, N))
    assert (weights.shape, weights.dtype) == ((1, N), torch.float32)
    probability = sampler.priorities.probabilities(ITEMS)
    np.testing.assert_allclose(weights[0], probability[probability > 0].min() / probability[index], rtol=1e-5)
    with pytest.raises(IdError, match="but 7 was not drawn"):
        sampler.weights([int(index[0]), 7])
    for absent in (-1, N):
        with pytest.raises(IdError, match="`indices`"):
            sampler.weights([absent])


class TestResume:
    """A run that loads a state continues as the unbroken run."""

    def created(self, seed=0):
        strategy = RankBased(beta=Linear(0.4, 1.0))
        return PrioritizedDatasetSampler(ITEMS, B, sampler=strategy, num_samples=10 * B, seed=seed)

    def run(self, sampler, begin, end, workers=0):
        """Train on batches `begin` to `end` of epochs of ten, and return them with their weights."""
        trained = []
        while (batch := begin + len(trained)) < end:
            sampler.progress = batch // 10 / 10
            for index in DataLoader(ITEMS, batch_size=B, sampler=sampler, num_workers=workers):
                sampler.update_priorities(index, torch.sin(index + begin + len(trained)))
                trained.append((index.tolist(), sampler.weights(index).tolist()))
                if begin + len(trained) == end:
                    break
        return trained

    def resumed(self, state):
        """A sampler of another seed after loading the state, by way of a file."""
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        sampler = self.created(seed=9)
        sampler.load_state_dict(torch.load(file, weights_only=True))
        return sampler

    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("batches", [3, 10, 19])
    def test_equals_the_unbroken_run(self, workers, batches):
        complete, broken = self.created(), self.created()
        expected = self.run(complete, 0, 30, workers)
        assert self.run(broken, 0, batches, workers) == expected[:batches]
        sampler = self.resumed(broken.state_dict(used=(batches - 1) % 10 * B + B))
        assert sampler.progress == broken.progress
        assert self.run(sampler, batches, 30, workers) == expected[batches:]

    def test_within_a_draw(self):
        complete, broken = self.created(), self.created()
        complete.progress = broken.progress = 0.5
        indices = iter(broken)
        begin = [next(indices) for _ in range(B + 3)]
        assert begin + list(self.resumed(broken.state_dict())) == list(complete)

    def test_state_of_other_options_changes_nothing(self):
        sampler, twin = (fed(PrioritizedDatasetSampler(ITEMS, B, seed=0)) for _ in range(2))
        others = [
            (PrioritizedDatasetSampler(ITEMS, B, num_samples=4), "num_samples"),
            (PrioritizedDatasetSampler(ITEMS, B, num_samples=N, world_size=2, seed=0), "world_size"),
            (PrioritizedDatasetSampler(ITEMS, B, sampler=LAP()), "sampler"),
            (PrioritizedDatasetSampler(range(N + 1), B, num_samples=N), "capacity"),
        ]
        for other, name in others:
            with pytest.raises(SnapshotError, match=name):
                sampler.load_state_dict(other.state_dict())
        for senseless in (None, {}, {"epoch": 3, "files": {}}, {"epoch": [N, 1], "files": {"a": b"x"}}):
            with pytest.raises(SnapshotError):
                sampler.load_state_dict(senseless)
        assert list(sampler) == list(twin)


CALLS = [
    Call(
        PrioritizedDatasetSampler,
        {"data_source": ITEMS, "batch_size": B},
        {
            "data_source": "text nul",
            "num_samples": "None",
            "rank": "0",
            "seed": SEED,
        },
    ),
    Call("weights", {"indices": [3]}, {"indices": "0 [] True"}, make=lambda: drawn()),
    Call("state_dict", {"used": 3}, {"used": "None 0"}, make=lambda: drawn()),
]


def drawn():
    sampler = PrioritizedDatasetSampler(ITEMS, B, num_samples=900, seed=0)
    assert 3 in list(sampler)
    return sampler


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments_are_refused_by_name(call):
    assert wrongs(call, named=True) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 2}, "`seed` must be the same number on every rank"),
        ({"world_size": 2, "rank": 2, "seed": 0}, "`rank` must be at most 1"),
        ({"sampler": Recency(0.9)}, "`sampler` must be a sampler that takes priorities"),
        ({"sampler": Prioritized(block_length=4)}, "`sampler` must be a sampler that takes priorities"),
        ({"sampler": Mixture((LAP(), EpisodeEnds()))}, "`sampler` must be a sampler that takes priorities"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PrioritizedDatasetSampler(ITEMS, B, **options)


def test_nothing_to_draw_is_an_error_of_the_epoch():
    sampler = PrioritizedDatasetSampler(ITEMS, B, sampler=Greedy(), seed=0)
    sampler.update_priorities(ITEMS, priority=0.0)
    with pytest.raises(EmptyBufferError):
        next(iter(sampler))
    with pytest.raises(IdError):
        sampler.update_priorities([N], [1.0])
