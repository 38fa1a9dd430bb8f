"""Good play of each game, recorded: what was done, and a checksum of what was seen.

Random play dies too soon to see a game get harder, so actions were found by looking ahead: for each action, some
random futures in copies that have the same random numbers. `python -m tests.envs.pixels.golden` records again.
"""

import zlib
from pathlib import Path

import numpy as np

from replaylab.envs.minatar import MinAtarVectorEnv
from replaylab.envs.registration import MINATAR

FOLDER = Path(__file__).parent / "golden"
SEEDS = [3, 5]
STEPS = 2_600  # Freeway ends after 2,501
EVERY = 100  # frames between two kept checksums


def make(game):
    return MinAtarVectorEnv(len(SEEDS), game=game, minimal_actions=False)


def play(game, actions):
    """Yield (obs, reward, terminated) of the reset, where the latter two are zero, and of each step."""
    env = make(game)
    obs, _ = env.reset(seed=SEEDS)
    yield obs, np.zeros(len(SEEDS), np.float32), np.zeros(len(SEEDS), bool)
    for action in actions:
        obs, reward, terminated, _, _ = env.step(action)
        yield obs, reward, terminated


def checksums(frames):
    """Return a running checksum of the frames, every `EVERY` frames."""
    running, sums = 0, []
    for t, frame in enumerate(frames):
        for part in frame:
            running = zlib.crc32(np.ascontiguousarray(part).tobytes(), running)
        if t % EVERY == 0:
            sums.append(running)
    return np.array(sums, np.uint32)


def plan(env, rng, futures=12, depth=40):
    """Return the actions whose futures were best: alive for longer, with more reward and divers."""
    rules, copies = env._rules, env.state()["variables"]
    count = len(copies) * 6 * futures
    ahead = copies.repeat(6 * futures, 0)
    action = np.tile(np.arange(6).repeat(futures), len(copies))
    ended, score = np.zeros(count, bool), np.zeros(count)
    for _ in range(depth):
        reward, terminated = rules.step(ahead, action, ended, 0.1, True)
        ended |= terminated
        score += 8 * reward + ~ended
        action = np.where(rng.random(count) < 0.4, rng.integers(6, size=count), action)
    if "diver_gauge" in env.channels:
        divers = rules.observe(ahead)[:, env.channels.index("diver_gauge")].sum((1, 2))
        score += 10 * np.minimum(divers, 5) * ~ended  # the sixth is worth what surfacing earns
    mean = score.reshape(len(copies), 6, futures)
    return (mean.mean(2) + mean.max(2)).argmax(1)


def record(game):
    """Play a game well; return the actions uint8 (T, E)."""
    env, rng, actions = make(game), np.random.default_rng(0), []
    env.reset(seed=SEEDS)
    for _ in range(STEPS):
        actions.append(plan(env, rng))
        env.step(actions[-1])
    return np.array(actions, np.uint8)


def main():
    """Record every game again."""
    FOLDER.mkdir(exist_ok=True)
    for game in MINATAR.values():
        actions = record(game)
        np.savez_compressed(FOLDER / f"{game}.npz", actions=actions, checksums=checksums(play(game, actions)))
        rewards, ends = zip(*((frame[1], frame[2]) for frame in play(game, actions)), strict=True)
        print(game, "rewards", np.sum(rewards, 0), "episodes", np.sum(ends, 0), "most in a frame", np.max(rewards))


if __name__ == "__main__":
    main()
