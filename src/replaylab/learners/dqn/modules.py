"""Deep Q-learners whose networks are PyTorch modules: custom networks, and all networks on a GPU.

Each replica is a separate learner, and they are updated one after another. Batching them (`torch.func.vmap`) was
measured: an update of 16 small perceptrons is twice as fast, but the compiled core is faster still; an update of
convolutional networks takes 1.5 times as long; and not every module can be batched.

A custom module is in evaluation mode (`eval()`) except for the differentiated pass of an update, which is in training
mode. Its random numbers there, for example dropout masks, depend only on the seed and the number of the update.

Shapes: R replicas, N observations, B drawn steps, A actions.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.api.exploration import EpsilonGreedyAgents, at
from replaylab.learners.api.observations import Inputs, as_they_are
from replaylab.learners.api.protocols import Obs, Probe, State, ValueUpdate
from replaylab.learners.api.random_streams import Stream, generator, numbers
from replaylab.learners.dqn.layers import ImageLayers
from replaylab.learners.dqn.networks import ConvolutionalNetwork, Perceptron, initialised
from replaylab.learners.dqn.optimizers import SGD, Adam, RMSprop
from replaylab.learners.dqn.perceptrons import bootstrap_discount
from replaylab.learners.dqn.settings import DQNSettings, Precision
from replaylab.replay import Batch, as_schedule


class Rows(NamedTuple):
    """One replica's rows of a batch, (B, ...) each, on the device."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    discount: Tensor
    weight: Tensor


class ModuleAgents(EpsilonGreedyAgents):
    """R deep Q-learners with PyTorch modules; see `Agents` for the methods.

    Args:
        learner: The settings.
        make: Returns the network of a replica, from its seed.
        inputs: Converts observations (R, N, ...) to inputs of the networks.
        actions: The action space.
        seeds: One for each replica.
    """

    def __init__(
        self,
        learner: DQNSettings,
        make: Callable[[int], nn.Module],
        inputs: Callable[[Obs], npt.NDArray[Any]],
        actions: spaces.Discrete,
        seeds: Sequence[int],
    ) -> None:
        super().__init__(learner.epsilon, actions, seeds, learner.envs)
        self.device = usable_device(learner.device)
        self._inputs, self._gamma, self.loss = inputs, learner.gamma, learner.loss
        self.learners = [ModuleLearner(learner, make(seed).to(self.device), seed) for seed in seeds]
        self._learning_rate = as_schedule(learner.learning_rate)

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set ε and the learning rates."""
        super().set_progress(progress)
        rates = np.broadcast_to(at(self._learning_rate, progress), len(self.learners))
        for learner, rate in zip(self.learners, rates.tolist(), strict=True):
            learner.set_rate(rate)

    def q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q(s, ·) (R, N, A) for observations (R, N, ...)."""
        return self._values([learner.online for learner in self.learners], obs)

    def target_q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q⁻(s, ·) (R, N, A), the target networks' values."""
        return self._values([learner.target for learner in self.learners], obs)

    def update(self, batch: Batch) -> ValueUpdate:
        """Update every replica once, with its part of the batch (R, B, ...)."""
        self.updates += 1
        replicas = zip(self.learners, self._rows(batch), strict=True)
        results = [learner.update(self.updates, rows) for learner, rows in replicas]
        td_error, slope, q = torch.stack(results, 1).numpy(force=True)
        return ValueUpdate(td_error, slope, q, batch.weight)

    def probe(self, batch: Batch) -> Probe:
        """Return the TD errors and gradients that `update` would have; it runs on copies, as modules may have state."""
        replicas = zip(self.learners, self._rows(batch), strict=True)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            probes = [learner.probe(self.updates + 1, rows) for learner, rows in replicas]
        td_error, gradient, q = (np.stack([probe[i].numpy(force=True) for probe in probes]) for i in (0, 1, 2))
        return Probe(td_error, gradient, q)

    def copy_target(self, where: npt.NDArray[np.bool_]) -> None:
        """Copy the online network to the target network in some replicas, bool (R,)."""
        for learner in itertools.compress(self.learners, where):
            learner.target.load_state_dict(learner.online.state_dict())

    def weights(self) -> State:
        """Return the online modules' states, copied."""
        states = [learner.online.state_dict() for learner in self.learners]
        return {name: np.stack([state[name].numpy(force=True) for state in states]) for name in states[0]}

    def take_weights(self, weights: State) -> None:
        """Use the states of online modules that `weights` of other agents returned."""
        for r, learner in enumerate(self.learners):
            learner.online.load_state_dict({name: torch.tensor(array[r]) for name, array in weights.items()})

    def state(self) -> State:
        """Return the modules' states, the optimizers' averages and the count of updates, copied."""
        states = [learner.state() for learner in self.learners]
        stacked = {name: np.stack([state[name].numpy(force=True) for state in states]) for name in states[0]}
        return stacked | self.exploration_state() | {"updates": np.array(self.updates)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.updates = int(state["updates"])
        self.restore_exploration(state)
        for r, learner in enumerate(self.learners):
            of_module = {name: torch.tensor(array[r]) for name, array in state.items() if "." in name}
            learner.restore(of_module)

    def _values(self, networks: Sequence[nn.Module], obs: Obs) -> npt.NDArray[np.float32]:
        x = self._tensor(self._inputs(obs))
        with torch.no_grad():
            learned = zip(self.learners, networks, x, strict=True)
            return np.stack([learner.values(network, rows).numpy(force=True) for learner, network, rows in learned])

    def _rows(self, batch: Batch) -> list[Rows]:
        """Return a batch (R, B, ...) as a list of each replica's rows."""
        action = self.index_of(batch.action).astype(np.int64, copy=False)
        obs, next_obs = self._inputs(batch.obs), self._inputs(batch.next_obs)
        discount = bootstrap_discount(batch, self._gamma)
        columns = map(self._tensor, (obs, action, batch.reward, next_obs, discount, batch.weight))
        return [Rows(*rows) for rows in zip(*columns, strict=True)]

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)


class ModuleLearner:
    """One replica: a network, its target network and its optimizer.

    Args:
        settings: The learner.
        online: The network, on its device.
        seed: Seed of a custom module's random numbers.
    """

    def __init__(self, settings: DQNSettings, online: nn.Module, seed: int) -> None:
        self.settings, self.online = settings, online
        self._custom = settings.module is not None  # the library's networks have one mode, and draw nothing
        self._draws = numbers(seed, Stream.MODULE_DRAWS, 1)[0]
        if self._custom:
            online.eval()
        self.target = copy.deepcopy(online).requires_grad_(False)
        self.optimizer, self._averages = torch_optimizer(settings, online)

    def update(self, count: int, rows: Rows) -> Tensor:
        """Do the `count`-th update, and return δ, ℓ'(δ) and Q(s, a), (3, B)."""
        result = self.learn(count, rows)
        self.move_target(count)
        return result

    def learn(self, count: int, rows: Rows) -> Tensor:
        """Do the `count`-th update of the online network, and return δ, ℓ'(δ) and Q(s, a), (3, B).

        All it does on the device is the same for each `count`, unless the module is custom.
        """
        with products_in(self.settings.precision):
            td_error, slope, q = self._errors(count, rows)
            self.optimizer.zero_grad()
            torch.autograd.backward(q, -rows.weight * slope / len(q))
        if self.settings.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()
        return torch.stack([td_error, slope, q.detach()])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):  # whose address CUDA graphs know
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

    def values(self, network: nn.Module, x: Tensor) -> Tensor:
        """Return a network's Q(s, ·) (B, A) in float32, or in the dtype of a custom module."""
        if self.settings.precision != "bfloat16":
            with products_in(self.settings.precision):
                q: Tensor = network(x)
                return q
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):  # a cache would outlive a CUDA graph
            q = network(x)
        return q.float()

    def probe(self, count: int, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return δ (B,), the gradient (P,) and Q(s, a) (B,) that the `count`-th update would have."""
        still = copy.copy(self)
        still.online, still.target = copy.deepcopy(self.online), copy.deepcopy(self.target)
        td_error, slope, q = still._errors(count, rows)
        parameters = [parameter for parameter in still.online.parameters() if parameter.requires_grad]
        seed = -rows.weight * slope / len(q)
        gradient = torch.autograd.grad(q, parameters, seed, allow_unused=True, materialize_grads=True)
        return td_error, torch.cat([part.ravel() for part in gradient]), q

    def _errors(self, count: int, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return δ, ℓ'(δ), and Q(s, a) with its graph, each (B,)."""
        settings = self.settings
        with torch.no_grad():
            q_next = self.values(self.target, rows.next_obs)
            best = (self.values(self.online, rows.next_obs) if settings.double else q_next).argmax(1, keepdim=True)
            y = rows.reward + rows.discount * q_next.gather(1, best).squeeze(1)
            if settings.target_range is not None:
                y = y.clamp(*settings.target_range)
        with self._training(count, rows.obs.device):
            q = self.values(self.online, rows.obs).gather(1, rows.action.unsqueeze(1)).squeeze(1)
        td_error = y - q.detach()
        slope = td_error.clamp(-1.0, 1.0) if settings.loss == "huber" else td_error
        return td_error, slope, q

    @contextmanager
    def _training(self, count: int, device: torch.device) -> Iterator[None]:
        """Context manager: a custom module is in training mode, with the random numbers of the `count`-th update."""
        if not self._custom:
            yield
            return
        on_gpu = device.type == "cuda"
        with torch.random.fork_rng(devices=[device] if on_gpu else []):
            torch.default_generator.manual_seed(self._draws + count)
            if on_gpu:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(self._draws + count)
            self.online.train()
            try:
                yield
            finally:
                self.online.eval()

    @torch.no_grad()
    def move_target(self, count: int) -> None:
        """If it is due after `count` updates, move the target network, θ⁻ ← θ⁻ + τ·(θ − θ⁻), and copy the buffers."""
        if count % self.settings.target_period:
            return
        tau = self.settings.tau
        for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):  # shared ones once
            old.lerp_(new, tau) if tau < 1.0 else old.copy_(new)
        for old_buffer, new_buffer in zip(self.target.buffers(), self.online.buffers(), strict=True):
            old_buffer.copy_(new_buffer)

    def state(self) -> dict[str, Tensor]:
        """Return the networks' parameters and the optimizer's averages."""
        networks = {"online": self.online, "target": self.target}
        state = {f"{name}.{key}": value for name, net in networks.items() for key, value in net.state_dict().items()}
        for key, parameter in self.online.named_parameters():
            averages = self.optimizer.state.get(parameter, {})
            for name in self._averages:
                state[f"{name}.{key}"] = averages.get(name, torch.zeros_like(parameter))
            state[f"step.{key}"] = averages.get("step", torch.zeros(()))  # a parameter may be used in some updates only
        return state

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, net in (("online", self.online), ("target", self.target)):
            net.load_state_dict({key: state[f"{name}.{key}"] for key in net.state_dict()})
        for key, parameter in self.online.named_parameters():
            averages = {n: torch.empty_like(parameter).copy_(state[f"{n}.{key}"]) for n in self._averages}
            steps = torch.tensor(float(state[f"step.{key}"]), device=parameter.device)
            self.optimizer.state[parameter] = {"step": steps, **averages}


def module_agents(
    learner: DQNSettings,
    space: Space[Any],
    layers: ImageLayers | None,
    actions: spaces.Discrete,
    seeds: Sequence[int],
) -> ModuleAgents:
    """Return agents with the learner's custom module, or with the same network as in the core.

    Args:
        learner: The settings.
        space: Space of the observations.
        layers: Convolutions and hidden layers of networks for images; None: observations are flattened.
        actions: The action space.
        seeds: One for each replica.

    Raises:
        ConfigError: The network does not fit the observations, or the custom module is invalid or has other shapes.
    """
    num_actions = int(actions.n)
    boxed = isinstance(space, spaces.Box) and (learner.module is not None or layers is not None)
    inputs: Callable[[Obs], npt.NDArray[Any]] = as_they_are if boxed else Inputs(space)
    modules: list[nn.Module] = []

    def make(seed: int) -> nn.Module:
        if learner.module is None:
            network: nn.Module
            if layers is None:
                network = Perceptron(Inputs(space).size, learner.hidden, num_actions, dueling=learner.dueling)
            else:
                network = ConvolutionalNetwork(space.shape or (), layers, num_actions, dueling=learner.dueling)
            return initialised(network, generator(seed, Stream.INITIAL_WEIGHTS))
        with torch.random.fork_rng(devices=[]):  # PyTorch's global generator stays unchanged
            torch.default_generator.manual_seed(numbers(seed, Stream.INITIAL_WEIGHTS, 1)[0])
            module: nn.Module = learner.module(space, num_actions)
            _check_separate(module, modules)
            on_cpu = torch.device(learner.device).type == "cpu"
            check_module(module, space, num_actions, run=on_cpu)  # here lazy layers draw their weights
        return module

    return ModuleAgents(learner, make, inputs, actions, seeds)


def _check_separate(module: Any, before: list[nn.Module]) -> None:
    """Raise if a replica's module shares parameters or buffers with a previous one; append it to `before`."""
    if not isinstance(module, nn.Module):
        return
    tensors = {id(tensor) for tensor in itertools.chain(module.parameters(), module.buffers())}
    for previous in before:
        if not tensors.isdisjoint(map(id, itertools.chain(previous.parameters(), previous.buffers()))):
            raise ConfigError(
                "`module` of DQN must make a new torch.nn.Module at each call, but what it returned shares parameters "
                "with the one of another seed; make its layers within the function"
            )
    before.append(module)


def check_module(module: Any, space: Space[Any], num_actions: int, *, run: bool) -> None:
    """Raise unless a user's module maps observations (B, ...) to Q-values (B, A).

    Args:
        module: The return value of the user's function.
        space: Space of the observations.
        num_actions: A.
        run: Whether to check its values for two observations of zeros, on a copy and without moving random streams.
            A module with lazy layers is always run itself, so that the layers are initialised.

    Raises:
        ConfigError: The value is not a module, or the module fails or returns something else.
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(f"`module` of DQN must return a torch.nn.Module, but returned {shown(module)}")
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor) and value.dtype == torch.bfloat16:
            raise ConfigError(
                f"`module` of DQN must keep numbers of types that NumPy has, such as float32, but `{name}` is "
                f"{value.dtype}"
            )
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"`module` of DQN must keep only tensors, because checkpoints hold nothing else, but `{name}` is "
                f"{shown(value)}"
            )
    if not any(tensor.requires_grad for tensor in module.parameters()):
        raise ConfigError("`module` of DQN must have parameters that can be trained, but it has none")
    lazy = any(is_lazy(tensor) for tensor in itertools.chain(module.parameters(), module.buffers()))
    if not (run or lazy):
        return
    shape = space.shape if isinstance(space, spaces.Box) else (Inputs(space).size,)
    dtype = space.dtype if isinstance(space, spaces.Box) else np.float32
    obs_shape = ", ".join(map(str, ("B", *shape)))
    wanted = f"`module` of DQN must map observations ({obs_shape}) of {np.dtype(dtype)} to Q-values (B, {num_actions})"
    zeros = as_they_are(np.zeros((2, *shape), dtype))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            values = (module if lazy else copy.deepcopy(module)).eval()(torch.from_numpy(np.ascontiguousarray(zeros)))
    except Exception as error:  # of any kind: the module is the user's
        raise ConfigError(f"{wanted}, but it raised {type(error).__name__}: {error}") from error
    if not isinstance(values, Tensor) or tuple(values.shape) != (2, num_actions):
        got = f"shape {tuple(values.shape)} of two" if isinstance(values, Tensor) else shown(values)
        raise ConfigError(f"{wanted}, but returned {got}")
    if values.dtype == torch.bfloat16:
        raise ConfigError(f"{wanted}, of a type that NumPy has, but returned {values.dtype}; return `.float()` of them")


def torch_optimizer(settings: DQNSettings, network: nn.Module) -> tuple[torch.optim.Optimizer, tuple[str, ...]]:
    """Return PyTorch's optimizer for a network, and the names of its averages of each parameter.

    On a GPU, for a replay on the device, it can be captured in CUDA graphs, unless the module is custom: its learning
    rate is a tensor.
    """
    chosen, parameters = settings.optimizer, list(network.parameters())
    rate: Any = as_schedule(settings.learning_rate)(0.0)
    captured = settings.replay == "device" and settings.module is None and parameters[0].is_cuda
    if captured:
        rate = torch.tensor(rate, device=parameters[0].device)
    capturable: dict[str, Any] = {"capturable": True} if captured else {}
    if isinstance(chosen, RMSprop):
        rmsprop = torch.optim.RMSprop(
            parameters, rate, chosen.decay, chosen.epsilon, centered=chosen.centered, **capturable
        )
        return rmsprop, ("square_avg", "grad_avg") if chosen.centered else ("square_avg",)
    if isinstance(chosen, SGD):
        fused: dict[str, Any] = {"fused": True} if captured else {}
        sgd = torch.optim.SGD(parameters, rate, momentum=chosen.momentum, **fused)
        return sgd, ("momentum_buffer",) if chosen.momentum else ()
    assert isinstance(chosen, Adam)
    betas = (chosen.beta1, chosen.beta2)
    adam = torch.optim.Adam(parameters, rate, betas, chosen.epsilon, fused=True, **capturable)
    return adam, ("exp_avg", "exp_avg_sq")


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Context manager: with "tf32", products of float32 matrices may be rounded to TF32, forwards and backwards.

    Convolutions may by PyTorch's default.
    """
    if precision != "tf32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def usable_device(name: str) -> torch.device:
    """Return the device of this name.

    Raises:
        ConfigError: PyTorch has no such device, or it is not available.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        rule = '`device` of DQN must be one that PyTorch can use here, such as "cpu"'
        raise ConfigError(f"{rule}, but got {name!r}: {error}") from error
    return device
