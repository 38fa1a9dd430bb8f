"""Steps a second of MinAtar's games: 64 copies here, in the published package, in gymnax and in pgx, on the processor.

`pip install minatar gymnax pgx pgx-minatar` brings the others; one that is missing is named and left out. All play at
random, every copy starts again where its episode ends, and every step returns what is seen. The compiled ones are timed
step by step, as a training loop outside of JAX calls them, and with all steps of a block in one compiled loop.
"""

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from replaylab.envs import make_vector_env
from replaylab.envs.registration import MINATAR

ACTIONS = 6
Contestant = tuple[str, int, Callable[[], object]]
"""A name, and what does a timed block of so many steps of all copies."""


def replaylab(env_id: str, _: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    env = make_vector_env(f"replaylab/{env_id}", num_envs, minimal_actions=False)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(ACTIONS, size=(steps, num_envs))

    def block() -> None:
        for action in actions:
            env.step(action)

    yield "replaylab", steps, block


def published(_: str, game: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    minatar: Any = importlib.import_module("minatar.environment")
    envs = [minatar.Environment(game) for _ in range(num_envs)]
    for env in envs:
        env.reset()
    actions = np.random.default_rng(0).integers(ACTIONS, size=(max(steps // 10, 1), num_envs)).tolist()

    def block() -> None:
        for action in actions:
            for env, chosen in zip(envs, action, strict=True):
                _, terminated = env.act(chosen)
                if terminated:
                    env.reset()
                env.state()

    yield "minatar", len(actions), block


def gymnax(env_id: str, _: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    library: Any = importlib.import_module("gymnax")
    jax: Any = importlib.import_module("jax")
    env, params = library.make(f"{env_id.split('-')[1]}-MinAtar")
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(jax.random.key(0), num_envs), params)

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        to_act, to_step = jax.random.split(key)
        actions = jax.random.randint(to_act, (num_envs,), 0, env.num_actions)
        keys = jax.random.split(to_step, num_envs)
        obs, state, *outcome, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
        return state, (obs, *outcome)

    yield from _compiled("gymnax", step, state, steps)


def pgx(_: str, game: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    library: Any = importlib.import_module("pgx")
    jax: Any = importlib.import_module("jax")
    wrappers: Any = importlib.import_module("pgx.experimental")
    env = library.make(f"minatar-{game}")
    state = jax.vmap(env.init)(jax.random.split(jax.random.key(0), num_envs))
    resetting = wrappers.auto_reset(env.step, env.init)

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        to_act, to_step = jax.random.split(key)
        actions = jax.random.randint(to_act, (num_envs,), 0, env.num_actions)
        state = jax.vmap(resetting)(state, actions, jax.random.split(to_step, num_envs))
        return state, (state.observation, state.rewards, state.terminated)

    yield from _compiled("pgx", step, state, steps)


def _compiled(name: str, step: Any, state: Any, steps: int) -> Iterator[Contestant]:
    jax: Any = importlib.import_module("jax")
    keys = jax.random.split(jax.random.key(1), steps)
    singly, together = jax.jit(step), jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))
    each = list(keys)

    def block() -> None:
        now = state
        for key in each:
            now, seen = singly(now, key)
            jax.block_until_ready(seen)

    yield name, steps, block
    yield f"{name}, one loop", steps, lambda: jax.block_until_ready(together(state, keys))


def measure(games: Sequence[str], num_envs: int, steps: int, rounds: int) -> None:
    """Print steps a second on the clock and of the processor, and how many times as many are here.

    On a busy machine the clock flatters whoever's blocks are short; processor time counts all threads.
    """
    print(f"{num_envs} copies, {rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("steps a second on the clock, and how many times as many here; then the same of the processor", flush=True)
    for env_id, game in MINATAR.items():
        if game not in games:
            continue
        contestants: list[Contestant] = []
        for maker in (replaylab, published, gymnax, pgx):
            try:
                contestants += maker(env_id, game, num_envs, steps)
            except (ImportError, ValueError) as error:
                print(f"{maker.__name__} is left out: {error}")
        times = np.zeros((rounds + 1, len(contestants), 2))  # on the clock, and of the processor
        for times_of_round in times:
            for i, (_, count, block) in enumerate(contestants):
                start = time.perf_counter(), time.process_time()
                block()
                spent = time.perf_counter() - start[0], time.process_time() - start[1]
                times_of_round[i] = np.array(spent) / (num_envs * count)
        rates = 1 / np.median(times[1:], 0)  # the first round compiles
        print(env_id, flush=True)
        for (name, _, _), rate, ahead in zip(contestants, rates, rates[0] / rates, strict=True):
            print(f"  {name:17} {rate[0]:11,.0f} {ahead[0]:7.1f}   {rate[1]:11,.0f} {ahead[1]:7.1f}", flush=True)


def main() -> None:
    parser = harness.parser(__doc__, 5)
    parser.add_argument("--games", nargs="+", default=list(MINATAR.values()), choices=list(MINATAR.values()))
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1_000, help="of all copies, in a timed block")
    measure(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
