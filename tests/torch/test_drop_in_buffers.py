"""The buffers of FastTD3 and ManiSkill, by their own arguments and keys."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

from replaylab.replay import Prioritized
from replaylab.torch.fasttd3 import SimpleReplayBuffer
from replaylab.torch.maniskill import ReplayBuffer

E, T = 3, 8
ONES = torch.ones(E)


def step(t, n_critic):
    """Step t of three environments: environment 0 is truncated at 2, environment 1 terminates at 4."""
    dones, truncations = torch.zeros(2, E, dtype=torch.long)
    truncations[0] = t == 2
    dones[:2] = torch.tensor([t == 2, t == 4])
    reward = 10.0 * torch.arange(E) + t

    def observed(at):
        obs = reward[:, None] * 0 + at + torch.tensor([[0.0, 0.5]])
        critic = torch.cat((obs, obs[:, :1] + 100.0), 1)[:, -n_critic:]
        return {"observations": obs, "critic_observations": critic}

    after = {"rewards": reward, "dones": dones, "truncations": truncations, **observed(50.0 if t in (2, 4) else t + 1)}
    return TensorDict({**observed(t), "actions": reward[:, None], "next": after}, batch_size=E)


@pytest.mark.parametrize("playground_mode", [False, True])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_fasttd3(n_steps, playground_mode, device):
    n_critic = 3 if playground_mode else 1
    options = {"n_critic_obs": n_critic, "asymmetric_obs": True, "playground_mode": playground_mode}
    options |= {"final_obs_share": 0.5}  # two of eight steps lead to other observations, in all environments
    buffer = SimpleReplayBuffer(
        E, T, 2, 1, n_steps=n_steps, gamma=0.5, device=device, sampler=Prioritized(0.6, 0.4), seed=0, **options
    )
    for t in range(T + 3):
        buffer.extend(step(t, n_critic))
    data = buffer.sample(20)
    assert data.batch_size == (20 * E,)
    after = data["next"]
    for row in range(20 * E):
        t, env = divmod(int(data["id"][row]), E)
        taken = min(n_steps, T + 3 - t)
        for end in (2,) if env == 0 else (4,) if env == 1 else ():
            taken = min(taken, end - t + 1) if t <= end else taken
        last = t + taken - 1
        ends = (env, last) in ((0, 2), (1, 4))
        assert data["actions"][row] == 10 * env + t
        assert after["rewards"][row] == sum(0.5**k * (10 * env + t + k) for k in range(taken))
        assert after["effective_n_steps"][row] == taken
        assert (after["dones"][row], after["truncations"][row]) == (ends, (env, last) == (0, 2))
        if (env, last) != (1, 4):
            assert after["observations"][row, 0] == (50 if last in (2, 4) else last + 1)
            assert after["critic_observations"][row, -1] == after["observations"][row, 0] + 100
        assert data["critic_observations"].shape == (20 * E, n_critic)
    assert int(buffer.update_priorities(data["id"], after["rewards"])) == 20 * E


MAKE = """
rb = SimpleReplayBuffer(
    n_env=args.num_envs,
    buffer_size=args.buffer_size,
    n_obs=n_obs,
    n_act=n_act,
    n_critic_obs=n_critic_obs,
    asymmetric_obs=envs.asymmetric_obs,
    playground_mode=env_type == "mujoco_playground",
    n_steps=args.num_steps,
    gamma=args.gamma,
    device=device,
)
"""
STEP = """
transition = TensorDict(
    {
        "observations": obs,
        "actions": torch.as_tensor(actions, device=device, dtype=torch.float),
        "next": {
            "observations": true_next_obs,
            "rewards": torch.as_tensor(rewards, device=device, dtype=torch.float),
            "truncations": truncations.long(),
            "dones": dones.long(),
        },
    },
    batch_size=(envs.num_envs,),
    device=device,
)
if envs.asymmetric_obs:
    transition["critic_observations"] = critic_obs
    transition["next"]["critic_observations"] = true_next_critic_obs
rb.extend(transition)

data = rb.sample(max(1, args.batch_size // args.num_envs))
data["observations"] = normalize_obs(data["observations"])
data["next"]["observations"] = normalize_obs(data["next"]["observations"])
if envs.asymmetric_obs:
    data["critic_observations"] = normalize_obs(data["critic_observations"])
    data["next"]["critic_observations"] = normalize_obs(data["next"]["critic_observations"])
raw_rewards = data["next"]["rewards"]
data["next"]["rewards"] = normalize_reward(raw_rewards)

rewards = data["next"]["rewards"]
dones = data["next"]["dones"].bool()
truncations = data["next"]["truncations"].bool()
bootstrap = (truncations | ~dones).float()
discount = args.gamma ** data["next"]["effective_n_steps"]
"""
"""Every use of the buffer in FastTD3's training script, ``fast_td3/train.py`` at 229ed59b (MIT license)."""

SIZES = ["n_env", "buffer_size", "n_obs", "n_act", "n_critic_obs"]
ATTRIBUTES = [*SIZES, "asymmetric_obs", "playground_mode", "gamma", "n_steps", "device", "ptr"]
"""Those of its ``SimpleReplayBuffer`` (``fast_td3/fast_td3_utils.py``), without the tensors of its storage."""


@pytest.mark.parametrize("env_type", ["humanoid_bench", "isaaclab", "mujoco_playground"])
@pytest.mark.parametrize("num_steps", [1, 3])
def test_fasttd3s_training_script_runs(env_type, num_steps, device):
    asymmetric_obs = env_type != "humanoid_bench"
    args = SimpleNamespace(num_envs=4, buffer_size=6, num_steps=num_steps, gamma=0.9, batch_size=32)
    envs = SimpleNamespace(asymmetric_obs=asymmetric_obs, num_envs=4)
    names = {"SimpleReplayBuffer": SimpleReplayBuffer, "TensorDict": TensorDict, "torch": torch, "device": device}
    names |= {"args": args, "envs": envs, "env_type": env_type, "n_obs": 3, "n_act": 2, "n_critic_obs": 5}
    names |= {"normalize_obs": lambda obs: obs / 2, "normalize_reward": lambda reward: reward * 10}
    exec(MAKE, names)
    rb = names["rb"]
    for t in range(8):
        names["obs"], names["true_next_obs"] = torch.full((4, 3), 2.0 * t), torch.full((4, 3), 2.0 * t + 2)
        names["critic_obs"], names["true_next_critic_obs"] = (
            torch.full((4, 5), 2.0 * t),
            torch.full((4, 5), 2.0 * t + 2),
        )
        names["actions"], names["rewards"] = torch.zeros(4, 2), torch.ones(4)
        names["dones"], names["truncations"] = torch.arange(4) == t % 4, torch.zeros(4)
        exec(STEP, names)
    data, taken = names["data"], names["data"]["next"]["effective_n_steps"]
    assert len(data) == 32
    assert torch.equal(names["rewards"], 10 * sum((taken > k) * 0.9**k for k in range(num_steps)))
    going = names["bootstrap"] == 1
    assert torch.equal(data["next"]["observations"][going, 0], (data["observations"][:, 0] + taken)[going])
    torch.testing.assert_close(names["discount"], 0.9**taken)
    assert ("critic_observations" in data) == asymmetric_obs
    assert not going.all()
    assert all(hasattr(rb, name) for name in ATTRIBUTES)
    assert (rb.ptr, rb.buffer_size, rb.n_env, rb.n_steps) == (8, 6, 4, num_steps)


def test_maniskill(device):
    spaces = {"single_observation_space": SimpleNamespace(shape=(2,))}
    env = SimpleNamespace(**spaces, single_action_space=SimpleNamespace(shape=(1,)))
    buffer = ReplayBuffer(env, E, 26, torch.device(device), torch.device(device), final_obs_share=0.5, seed=0)
    for t in range(T + 3):
        values = step(t, 1)
        after = values["next"]
        stop = (after["dones"] > 0) & (after["truncations"] == 0)
        buffer.add(values["observations"], after["observations"], values["actions"], after["rewards"], stop)
    data = buffer.sample(64)
    steps, envs = data.id // E, data.id % E
    assert int(steps.min()) >= 3
    assert torch.equal(data.rewards, 10.0 * envs + steps)
    assert torch.equal(data.dones, ((steps == 4) & (envs == 1)).float())
    going = data.dones == 0
    wanted = torch.where(steps == 4, 50.0, steps + 1.0)
    assert torch.equal(data.next_obs[going, 0], wanted[going])
    assert bool((data.weight == 1).all())


def test_seed_of_pytorch_determines_the_draws(device):
    spaces = {"single_observation_space": SimpleNamespace(shape=(2,))}
    env = SimpleNamespace(**spaces, single_action_space=SimpleNamespace(shape=(1,)))
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        fasttd3 = SimpleReplayBuffer(E, T, 2, 1, device=device, next_obs="stored")
        maniskill = ReplayBuffer(env, E, 24, torch.device(device), torch.device(device), next_obs="stored")
        for t in range(T):
            values = step(t, 1)
            fasttd3.extend(values)
            after = values["next"]
            maniskill.add(values["observations"], after["observations"], values["actions"], after["rewards"], ONES)
        drawn.append((fasttd3.sample(9)["id"].tolist(), maniskill.sample(27).id.tolist()))
    assert drawn[0] == drawn[1]
    for first, other in zip(drawn[0], drawn[2], strict=True):
        assert first != other


def test_observations_in_sixteen_bits(device):
    """Whole numbers up to 256, which 16 bits hold, in half the memory."""
    env = SimpleNamespace(
        single_observation_space=SimpleNamespace(shape=(64,)), single_action_space=SimpleNamespace(shape=(1,))
    )
    obs, action, zeros = torch.arange(64.0).expand(E, 64), torch.zeros(E, 1), torch.zeros(E)
    nbytes = []
    for half in (None, "bfloat16"):
        fasttd3 = SimpleReplayBuffer(E, T, 64, 1, 64, asymmetric_obs=True, device=device, half=half)
        maniskill = ReplayBuffer(env, E, E * T, device, device, half=half)
        for _ in range(2):
            after = {
                "observations": obs,
                "critic_observations": obs,
                "rewards": zeros,
                "dones": zeros,
                "truncations": zeros,
            }
            row = {"observations": obs, "critic_observations": obs, "actions": action, "next": after}
            fasttd3.extend(TensorDict(row, batch_size=E))
            maniskill.add(obs, obs, action, zeros, zeros)
        data = fasttd3.sample(2)
        for drawn in (data["observations"], data["next"]["critic_observations"], maniskill.sample(6).next_obs):
            assert torch.equal(drawn.cpu(), torch.arange(64.0).expand(6, 64))
        nbytes.append((fasttd3.replay.nbytes, maniskill.replay.nbytes))
    for full, halved in zip(*nbytes, strict=True):
        assert halved < 0.6 * full


@pytest.mark.parametrize("sampler", [None, Prioritized(0.6, 0.4)], ids=repr)
def test_saved_buffers_continue_exactly(tmp_path, sampler, device):
    env = SimpleNamespace(
        single_observation_space=SimpleNamespace(shape=(2,)), single_action_space=SimpleNamespace(shape=(1,))
    )
    options = {"sampler": sampler, "final_obs_share": 0.5}
    makers = {
        "fasttd3": lambda seed: SimpleReplayBuffer(E, T, 2, 1, device=device, seed=seed, **options),
        "maniskill": lambda seed: ReplayBuffer(env, E, E * T, device, device, seed=seed, **options),
    }
    for name, make in makers.items():
        buffers = [make(1), make(2)]
        for t in range(T + 3):
            values = step(t, 1)
            after = values["next"]
            if name == "fasttd3":
                buffers[0].extend(values)
            else:
                buffers[0].add(values["observations"], after["observations"], values["actions"], after["rewards"], ONES)
        buffers[0].save(tmp_path / name)
        buffers[1].load(tmp_path / name)
        drawn = [buffer.sample(9) for buffer in buffers]
        ids = [data["id"] if name == "fasttd3" else data.id for data in drawn]
        assert torch.equal(*ids)
        if name == "fasttd3":
            assert buffers[1].ptr == T + 3
        else:
            assert (buffers[1].pos, buffers[1].full, buffers[1].per_env_buffer_size) == (3, True, T)


def test_holosomas_buffer_is_fasttd3s_with_critic_observations(device):
    """Its class (``fast_sac_utils.py`` at 943c3e0e, Apache 2.0) has these arguments, and keys of both observations."""
    make = partial(SimpleReplayBuffer, asymmetric_obs=True)
    names = {"n_env": E, "buffer_size": T, "n_obs": 2, "n_act": 1, "n_critic_obs": 3, "n_steps": 2, "gamma": 0.9}
    buffer = make(**names, device=device, final_obs_share=0.5)
    for t in range(T):
        buffer.extend(step(t, 3))
    data = buffer.sample(4)
    assert data["critic_observations"].shape == data["next"]["critic_observations"].shape == (4 * E, 3)
    keys = {"rewards", "dones", "truncations", "observations", "critic_observations", "effective_n_steps"}
    assert set(data["next"].keys()) == keys
