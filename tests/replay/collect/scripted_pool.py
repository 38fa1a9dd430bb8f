"""EnvPool's interface over scripted environments: any of those under way return next, in any order."""

from types import SimpleNamespace

import numpy as np

from tests.oracle import map_leaves
from tests.replay.collect.scripted_env import OBSERVATIONS, ScriptedEnv


class State(SimpleNamespace):
    def __getitem__(self, name):
        return getattr(self, name)


class ScriptedPool:
    """Resets in NEXT_STEP mode, as EnvPool does, and overwrites the arrays it returned.

    Args:
        kind: a key of `OBSERVATIONS`.
        scripts: of each environment, see `ScriptedEnv`.
        batch_size: environments returned by one `recv`.
        choose: takes the environments under way and a count, returns those that return, in their order.
    """

    def __init__(self, kind, scripts, batch_size, choose):
        self.envs = [ScriptedEnv(kind, i, script) for i, script in enumerate(scripts)]
        self.config = {"num_envs": len(scripts), "batch_size": batch_size, "max_num_players": 1}
        self.config["max_episode_steps"] = 4  # what `ScriptedDmPool` means by truncated
        self.choose, self.under_way, self.over, self.returned = choose, {}, set(), []
        self.spec = SimpleNamespace(
            gymnasium_observation_space=OBSERVATIONS[kind], gymnasium_action_space=self.envs[0].action_space
        )

    @property
    def is_async(self):
        return self.config["batch_size"] < len(self.envs)

    def async_reset(self):
        self.under_way = dict.fromkeys(range(len(self.envs)))

    def send(self, action, env_id):
        for i, a in zip(env_id.tolist(), np.asarray(action).tolist(), strict=True):
            assert i not in self.under_way
            self.under_way[i] = a

    def recv(self):
        who = self.choose(sorted(self.under_way), min(self.config["batch_size"], len(self.under_way)))
        return self.result([(i, *self.stepped(i, self.under_way.pop(i))) for i in who])

    def stepped(self, i, action):
        env = self.envs[i]
        if action is None or i in self.over:
            self.over.discard(i)
            return env.reset()[0], 0.0, False, False
        obs, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            self.over.add(i)
        return obs, reward, terminated, truncated

    def reset(self, env_id=None):
        who = range(len(self.envs)) if env_id is None else env_id.tolist()
        obs, *_, info = self.result([(i, *self.stepped(i, None)) for i in who])
        return obs, info

    def result(self, rows):
        for array in self.returned:
            array[...] = 111
        ids, obs, reward, terminated, truncated = zip(*rows, strict=True)
        obs = stack(obs)
        flat = []
        map_leaves(flat.append, obs)
        reward, terminated, truncated = np.array(reward, np.float32), np.array(terminated), np.array(truncated)
        self.returned = [*flat, reward]
        return obs, reward, terminated, truncated, {"env_id": np.array(ids, np.int32)}


class ScriptedDmPool(ScriptedPool):
    """The same in EnvPool's dm form, whose discount is 0 at every end of an episode."""

    def result(self, rows):
        obs, reward, terminated, truncated, info = super().result(rows)
        first = np.array([self.envs[i].t == 0 for i in info["env_id"]])
        state = obs if isinstance(obs, dict) else {"obs": obs}
        return SimpleNamespace(
            step_type=np.where(terminated | truncated, 2, np.where(first, 0, 1)),
            reward=reward,
            discount=1.0 - (terminated | truncated),
            observation=State(env_id=info["env_id"], **state),
        )

    def reset(self, env_id=None):
        who = range(len(self.envs)) if env_id is None else env_id.tolist()
        return self.result([(i, *self.stepped(i, None)) for i in who])


def stack(rows):
    if isinstance(rows[0], dict):
        return {key: stack([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(stack(column) for column in zip(*rows, strict=True))
    return np.stack(rows)
