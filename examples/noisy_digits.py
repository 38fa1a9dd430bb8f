"""Digits with wrong labels: does prioritized sampling help a classifier? See `docs/guides/prioritized-data-sets.md`."""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from replaylab.replay import Prioritized
from replaylab.statistics import bootstrap_interval, holm, paired_test
from replaylab.torch import PrioritizedDatasetSampler

TRAINED, WRONG, BATCH = 1_000, 0.3, 32
PRIORITIZED = Prioritized(alpha=0.6, beta=0.4)
ARMS = {
    "uniform": (Prioritized(alpha=0.0, beta=0.0), lambda loss: loss),
    "high loss first": (PRIORITIZED, lambda loss: loss),
    "low loss first": (PRIORITIZED, lambda loss: torch.exp(-loss)),
}
"""Each strategy's sampler, and its feedback from an item's loss; exp(−loss) is the probability of the item's label."""


def data_of(seed: int) -> tuple[torch.Tensor, ...]:
    """Return pictures (N, 64) and labels (N,) for training, of which some are wrong, and those for testing."""
    rng = np.random.default_rng(seed)
    pictures, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))
    x, y = torch.tensor(pictures[order] / 16, dtype=torch.float32), torch.tensor(labels[order])
    wrong = torch.from_numpy(rng.permutation(TRAINED)[: int(WRONG * TRAINED)])
    y[wrong] = (y[wrong] + torch.from_numpy(rng.integers(1, 10, len(wrong)))) % 10
    return x[:TRAINED], y[:TRAINED], x[TRAINED:], y[TRAINED:]


def train(arm: str, seed: int, epochs: int) -> float:
    """Return the share of test pictures that the trained network labels right."""
    x, y, test_x, test_y = data_of(seed)
    strategy, feedback_of = ARMS[arm]
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    sampler = PrioritizedDatasetSampler(y, BATCH, sampler=strategy, seed=seed)
    loader = DataLoader(TensorDataset(torch.arange(TRAINED), x, y), batch_size=BATCH, sampler=sampler)
    for _ in range(epochs):
        for index, pictures, labels in loader:
            loss = nn.functional.cross_entropy(network(pictures), labels, reduction="none")
            optimizer.zero_grad()
            (sampler.weights(index) * loss).mean().backward()
            optimizer.step()
            sampler.update_priorities(index, feedback_of(loss))
    return float((network(test_x).argmax(1) == test_y).float().mean())


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    """Train with each strategy and seed, print the comparison, and return the accuracies by strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args(arguments)
    accuracy = {arm: np.array([train(arm, seed, options.epochs) for seed in range(options.seeds)]) for arm in ARMS}
    tests = {arm: paired_test(accuracy[arm], accuracy["uniform"]) for arm in list(ARMS)[1:]}
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    for arm, values in accuracy.items():
        level = bootstrap_interval(values)
        print(f"{arm}: {level.estimate:.3f} ({level.low:.3f} to {level.high:.3f})")
    for arm, (size, _) in tests.items():
        numbers = f"{size.estimate:+.3f} ({size.low:+.3f} to {size.high:+.3f}), corrected p = {corrected[arm]:.2g}"
        print(f"{arm} against uniform: {numbers}")
    return accuracy


if __name__ == "__main__":
    main()
