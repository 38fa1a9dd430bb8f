"""Deep Q-learners whose networks are PyTorch modules: your own, and any on a GPU.

Each replica is a learner of its own, updated in turn. Batching them (`torch.func.vmap`) was measured: it makes an
update of 16 small perceptrons twice as fast, which the compiled core does better, and one of convolutional networks
half as slow again; and not every module can be batched.

A module of one's own is in evaluation mode (`eval()`) but for the one pass of an update that is differentiated, which
is in training mode. What it draws there, for dropout, say, hangs on the seed and the number of the update alone.

Shapes: R replicas, N observations, B drawn steps, A actions.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
from replaylab.learners.api.protocols import Obs, Probe, State, Step, ValueUpdate
from replaylab.learners.api.random_streams import Stream, generator, numbers
from replaylab.learners.dqn.layers import ImageLayers
from replaylab.learners.dqn.networks import ConvolutionalNetwork, Perceptron
from replaylab.learners.dqn.optimizers import SGD, Adam, RMSprop
from replaylab.learners.dqn.perceptrons import bootstrap_discount
from replaylab.replay import Batch, as_schedule

if TYPE_CHECKING:
    from replaylab.learners.dqn.settings import DQN


class ModuleAgents(EpsilonGreedyAgents):
    """R deep Q-learners with PyTorch modules; see `Agents` for the methods.

    Args:
        learner: The settings.
        make: Returns the network of a replica, from its seed.
        inputs: What the networks see of observations (R, N, ...).
        actions: The action space.
        seeds: One for each replica.
    """

    def __init__(
        self,
        learner: "DQN",
        make: Callable[[int], nn.Module],
        inputs: Callable[[Obs], npt.NDArray[Any]],
        actions: spaces.Discrete,
        seeds: Sequence[int],
    ) -> None:
        super().__init__(learner.epsilon, actions, seeds)
        self.device = usable_device(learner.device)
        self._inputs, self._gamma, self.loss = inputs, learner.gamma, learner.loss
        self.learners = [_ModuleLearner(learner, make(seed).to(self.device), seed) for seed in seeds]
        self._learning_rate = as_schedule(learner.learning_rate)
        self.updates = 0

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set ε and the learning rates."""
        super().set_progress(progress)
        rates = np.broadcast_to(at(self._learning_rate, progress), len(self.learners))
        for one, rate in zip(self.learners, rates.tolist(), strict=True):
            one.optimizer.param_groups[0]["lr"] = rate

    def q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q(s, ·) (R, N, A) for observations (R, N, ...)."""
        return self._values([one.online for one in self.learners], obs)

    def target_q_values(self, obs: Obs) -> npt.NDArray[np.float32]:
        """Return Q⁻(s, ·) (R, N, A), the target networks' values."""
        return self._values([one.target for one in self.learners], obs)

    def observe(self, step: Step) -> None:
        """Do nothing: a deep learner learns from batches."""

    def update(self, batch: Batch) -> ValueUpdate:
        """Do one step of deep Q-learning in every replica, on its own batch (R, B, ...)."""
        columns = self._columns(batch)
        self.updates += 1
        seen = [one.update(self.updates, *(c[r] for c in columns)) for r, one in enumerate(self.learners)]
        td_error, slope, q = torch.stack(seen, 1).numpy(force=True)
        return ValueUpdate(td_error, slope, q, batch.weight)

    def probe(self, batch: Batch) -> Probe:
        """Return what `update` would see and do, by copies of the modules, which may count what they see."""
        columns = self._columns(batch)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            found = [one.probe(self.updates + 1, *(c[r] for c in columns)) for r, one in enumerate(self.learners)]
        td_error, gradient, q = (np.stack([one[i].numpy(force=True) for one in found]) for i in (0, 1, 2))
        return Probe(td_error, gradient, q)

    def copy_target(self, where: npt.NDArray[np.bool_]) -> None:
        """Copy the online network to the target network in some replicas, bool (R,)."""
        for one in itertools.compress(self.learners, where):
            one.target.load_state_dict(one.online.state_dict())

    def weights(self) -> State:
        """Return the online modules' states, copied."""
        states = [one.online.state_dict() for one in self.learners]
        return {name: np.stack([state[name].numpy(force=True) for state in states]) for name in states[0]}

    def take_weights(self, weights: State) -> None:
        """Go by the online modules of others."""
        for r, one in enumerate(self.learners):
            one.online.load_state_dict({name: torch.tensor(array[r]) for name, array in weights.items()})

    def state(self) -> State:
        """Return the modules' states, the optimizers' averages and the count of updates, copied."""
        states = [one.state() for one in self.learners]
        stacked = {name: np.stack([state[name].numpy(force=True) for state in states]) for name in states[0]}
        return stacked | self.exploration_state() | {"updates": np.array(self.updates)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.updates = int(state["updates"])
        self.restore_exploration(state)
        for r, one in enumerate(self.learners):
            mine = {name: torch.tensor(array[r]) for name, array in state.items() if "." in name}  # of the modules
            one.restore(mine, self.updates)

    def _values(self, networks: Sequence[nn.Module], obs: Obs) -> npt.NDArray[np.float32]:
        x = self._tensor(self._inputs(obs))
        with torch.no_grad():
            return np.stack([network(x[r]).numpy(force=True) for r, network in enumerate(networks)])

    def _columns(self, batch: Batch) -> list[Tensor]:
        discount = bootstrap_discount(batch, self._gamma)
        action = self.index_of(batch.action).astype(np.int64, copy=False)
        arrays = (self._inputs(batch.obs), action, batch.reward, self._inputs(batch.next_obs), discount)
        return [self._tensor(array) for array in (*arrays, batch.weight)]

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)


class _ModuleLearner:
    """One replica: a network, its target network and its optimizer."""

    def __init__(self, settings: "DQN", online: nn.Module, seed: int) -> None:
        self.settings, self.online = settings, online
        self._own = settings.module is not None  # ours are the same in both modes, and draw nothing
        self._draws = numbers(seed, Stream.MODULE_DRAWS, 1)[0]
        if self._own:
            online.eval()
        self.target = copy.deepcopy(online).requires_grad_(False)
        self.optimizer, self._averages = torch_optimizer(settings, online)

    def update(
        self,
        count: int,
        obs: Tensor,
        action: Tensor,
        reward: Tensor,
        next_obs: Tensor,
        discount: Tensor,
        weight: Tensor,
    ) -> Tensor:
        """Do the `count`-th update, and return δ, ℓ'(δ) and Q(s, a), (3, B)."""
        settings = self.settings
        td_error, slope, q = self._errors(count, obs, action, reward, next_obs, discount)
        self.optimizer.zero_grad()
        torch.autograd.backward(q, -weight * slope / len(q))
        if settings.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), settings.max_grad_norm)
        self.optimizer.step()
        if count % settings.target_period == 0:
            self._move_target()
        return torch.stack([td_error, slope, q.detach()])

    def probe(
        self,
        count: int,
        obs: Tensor,
        action: Tensor,
        reward: Tensor,
        next_obs: Tensor,
        discount: Tensor,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return δ (B,), the gradient (P,) and Q(s, a) (B,) of what would be the `count`-th update."""
        still = copy.copy(self)
        still.online, still.target = copy.deepcopy(self.online), copy.deepcopy(self.target)
        td_error, slope, q = still._errors(count, obs, action, reward, next_obs, discount)
        parameters = [one for one in still.online.parameters() if one.requires_grad]
        gradient = torch.autograd.grad(
            q, parameters, -weight * slope / len(q), allow_unused=True, materialize_grads=True
        )
        return td_error, torch.cat([one.ravel() for one in gradient]), q

    def _errors(
        self, count: int, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return δ, ℓ'(δ), and Q(s, a) with its graph, each (B,)."""
        settings, action = self.settings, action.unsqueeze(1)
        with torch.no_grad():
            q_next = self.target(next_obs)
            best = (self.online(next_obs) if settings.double else q_next).argmax(1, keepdim=True)
            y = reward + discount * q_next.gather(1, best).squeeze(1)
            if settings.target_range is not None:
                y = y.clamp(*settings.target_range)
        with self._training(count, obs.device):
            q = self.online(obs).gather(1, action).squeeze(1)
        td_error = y - q.detach()
        slope = td_error.clamp(-1.0, 1.0) if settings.loss == "huber" else td_error
        return td_error, slope, q

    @contextmanager
    def _training(self, count: int, device: torch.device) -> Iterator[None]:
        """Have the user's module in training mode, with random numbers of the `count`-th update's own."""
        if not self._own:
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
    def _move_target(self) -> None:
        """θ⁻ ← θ⁻ + τ·(θ − θ⁻), and whatever else the module keeps is copied."""
        tau = self.settings.tau
        for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):  # shared ones once
            old.lerp_(new, tau) if tau < 1.0 else old.copy_(new)
        for kept, newest in zip(self.target.buffers(), self.online.buffers(), strict=True):
            kept.copy_(newest)

    def state(self) -> dict[str, Tensor]:
        networks = {"online": self.online, "target": self.target}
        state = {f"{name}.{key}": value for name, net in networks.items() for key, value in net.state_dict().items()}
        for key, parameter in self.online.named_parameters():
            averages = self.optimizer.state.get(parameter, {})
            for name in self._averages:
                state[f"{name}.{key}"] = averages.get(name, torch.zeros_like(parameter))
            state[f"step.{key}"] = averages.get("step", torch.zeros(()))  # fewer than the updates, of one seldom used
        return state

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], updates: int) -> None:
        for name, net in (("online", self.online), ("target", self.target)):
            net.load_state_dict({key: state[f"{name}.{key}"] for key in net.state_dict()})
        for key, parameter in self.online.named_parameters():
            averages = {n: torch.empty_like(parameter).copy_(state[f"{n}.{key}"]) for n in self._averages}
            steps = float(state.get(f"step.{key}", updates))  # which older checkpoints do not tell
            self.optimizer.state[parameter] = {"step": torch.tensor(steps, device=parameter.device), **averages}


def torch_optimizer(settings: "DQN", network: nn.Module) -> tuple[torch.optim.Optimizer, tuple[str, ...]]:
    """Return PyTorch's optimizer for a network, and what PyTorch calls its averages of each parameter."""
    chosen, rate, parameters = settings.optimizer, as_schedule(settings.learning_rate)(0.0), network.parameters()
    if isinstance(chosen, RMSprop):
        rmsprop = torch.optim.RMSprop(parameters, rate, chosen.decay, chosen.epsilon, centered=chosen.centered)
        return rmsprop, ("square_avg", "grad_avg") if chosen.centered else ("square_avg",)
    if isinstance(chosen, SGD):
        sgd = torch.optim.SGD(parameters, rate, momentum=chosen.momentum)
        return sgd, ("momentum_buffer",) if chosen.momentum else ()
    assert isinstance(chosen, Adam)
    betas = (chosen.beta1, chosen.beta2)
    return torch.optim.Adam(parameters, rate, betas, chosen.epsilon, fused=True), ("exp_avg", "exp_avg_sq")


def usable_device(name: str) -> torch.device:
    """Return the device of this name.

    Raises:
        ConfigError: PyTorch knows no such device, or this machine lacks it.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        rule = '`device` of DQN must be one that PyTorch can use here, such as "cpu"'
        raise ConfigError(f"{rule}, but got {name!r}: {error}") from error
    return device


def module_agents(
    learner: "DQN",
    space: Space[Any],
    layers: ImageLayers | None,
    actions: spaces.Discrete,
    seeds: Sequence[int],
) -> ModuleAgents:
    """Return agents with the learner's own module, or with the network that the core would compute.

    Args:
        learner: The settings.
        space: Of the observations.
        layers: Convolutions and hidden layers, of networks that see images; None: they see numbers in a row.
        actions: The action space.
        seeds: One for each replica.

    Raises:
        ConfigError: The network cannot see such observations, or the learner's own module is none, or of other shapes.
    """
    num_actions = int(actions.n)
    boxed = isinstance(space, spaces.Box) and (learner.module is not None or layers is not None)
    inputs = None if boxed else Inputs(space)

    made: list[nn.Module] = []

    def make(seed: int) -> nn.Module:
        if learner.module is None:
            network: Perceptron | ConvolutionalNetwork
            if layers is None:
                network = Perceptron(Inputs(space).size, learner.hidden, num_actions, dueling=learner.dueling)
            else:
                network = ConvolutionalNetwork(space.shape or (), layers, num_actions, dueling=learner.dueling)
            return network.initialise(generator(seed, Stream.INITIAL_WEIGHTS))
        with torch.random.fork_rng(devices=[]):  # PyTorch's own generator stays where it is
            torch.default_generator.manual_seed(numbers(seed, Stream.INITIAL_WEIGHTS, 1)[0])
            module: nn.Module = learner.module(space, num_actions)
            _check_own(module, made)
            on_cpu = torch.device(learner.device).type == "cpu"
            check_module(module, space, num_actions, run=on_cpu)  # here lazy layers draw their weights
        return module

    return ModuleAgents(learner, make, as_they_are if inputs is None else inputs, actions, seeds)


def _check_own(module: Any, before: list[nn.Module]) -> None:
    """Raise if a replica's module shares what it learns with another one's; `before` has those, and gets it."""
    if not isinstance(module, nn.Module):
        return
    kept = {id(one) for one in itertools.chain(module.parameters(), module.buffers())}
    for other in before:
        if not kept.isdisjoint(map(id, itertools.chain(other.parameters(), other.buffers()))):
            raise ConfigError(
                "`module` of DQN must make a new torch.nn.Module at each call, but what it returned shares parameters "
                "with the one of another seed; make its layers within the function"
            )
    before.append(module)


def check_module(module: Any, space: Space[Any], num_actions: int, *, run: bool) -> None:
    """Raise unless a user's module maps observations (B, ...) to Q-values (B, A).

    Args:
        module: What the user's function has returned.
        space: Of the observations.
        num_actions: A.
        run: Whether to look at what it returns, of two observations of zeros; a copy is asked, without randomness.
            A module with lazy layers is always asked, and itself, so that they are made.

    Raises:
        ConfigError: It is no module, fails, or returns something else.
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(f"`module` of DQN must return a torch.nn.Module, but returned {shown(module)}")
    for name, kept in module.state_dict().items():
        if isinstance(kept, Tensor) and kept.dtype == torch.bfloat16:
            raise ConfigError(
                f"`module` of DQN must keep numbers of types that NumPy has, such as float32, but `{name}` is "
                f"{kept.dtype}"
            )
        if not isinstance(kept, Tensor):
            raise ConfigError(
                f"`module` of DQN must keep tensors alone, of which checkpoints are made, but `{name}` is {shown(kept)}"
            )
    if not any(one.requires_grad for one in module.parameters()):
        raise ConfigError("`module` of DQN must have parameters that can be trained, but it has none")
    lazy = any(is_lazy(one) for one in itertools.chain(module.parameters(), module.buffers()))
    if not (run or lazy):
        return
    shape = space.shape if isinstance(space, spaces.Box) else (Inputs(space).size,)
    dtype = space.dtype if isinstance(space, spaces.Box) else np.float32
    seen = ", ".join(map(str, ("B", *shape)))
    wanted = f"`module` of DQN must map observations ({seen}) of {np.dtype(dtype)} to Q-values (B, {num_actions})"
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
