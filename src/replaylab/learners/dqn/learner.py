"""Deep Q-learning as a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import Space, spaces

from replaylab.errors import ConfigError
from replaylab.learners.api.observations import are_pixels
from replaylab.learners.api.protocols import Agents
from replaylab.learners.dqn.layers import board_layers, pixel_layers
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.learners.dqn.settings import DQNSettings


@dataclass(frozen=True)
class DQN(DQNSettings):
    """Deep Q-learning with a replay buffer and a target network.

    The target of a drawn step is ``y = r + γ·(1 − terminated)·Q⁻(s', a')`` with Q⁻ the target network and
    ``a' = argmax Q(s', ·)`` (double) or ``argmax Q⁻(s', ·)``; `truncated` does not stop the bootstrap. With
    n-step returns the batch's `discount` replaces γ·(1 − terminated). The loss is the mean over the
    batch of ``weight·ℓ(y − Q(s, a))``, with ℓ(δ) = δ²/2 (squared), or for |δ| > 1 |δ| − ½ (Huber).

    The defaults are for CartPole-v1 in 50,000 steps. With Huber's loss shorter target periods learn faster at first,
    then worse, and below 100 updates the values diverge; with the squared loss they do not.

    The network is a perceptron, above a small convolution if `filters` are asked for; else for pixels (three axes of
    uint8) it is a convolutional one (`pixel_network`). The compiled core computes them for all replicas, or PyTorch
    on another device. Or the network is yours (`module`). Of a goal environment it sees the observation and the
    desired goal.

    Sources: Mnih et al. 2015; van Hasselt, Guez & Silver 2016 (double); Wang et al. 2016 (dueling); Schaul et al.
    2016 (weights); Andrychowicz et al. 2017 (clipped targets); Young & Tian 2019 (filters); van Hasselt, Hessel &
    Aslanides 2019 (data-efficient).

    Attributes:
        hidden: Widths of a perceptron's hidden layers.
        learning_rate: Learning rate, a number or a schedule over training progress, which may end at 0.
        gamma: Discount γ.
        batch_size: B, drawn for each update.
        capacity: C, steps the replay buffer keeps.
        double: Whether the online network chooses the target's action.
        dueling: Whether the state's value and the actions' advantages have halves of the last hidden layer of their
            own (it is doubled), and Q = V + advantage − mean advantage.
        loss: ℓ, "huber" or "squared". The squared loss is δ²/2; PyTorch's `mse_loss` is δ², with gradients twice as
            large. For its steps double the learning rate of `SGD`, halve the bound `max_grad_norm`, and with `Adam`
            leave the learning rate: only its epsilon would be half as large, which seldom matters.
        target_period: Updates between two moves of the target network towards the online one, ``Q⁻ ← Q⁻ + τ·(Q − Q⁻)``.
        tau: τ; 1 copies.
        target_range: Bounds to which y is clipped; None: no clipping.
        learning_starts: Environment steps before the first update; below `batch_size` the first batches repeat the few
            steps that are there, and a sampler that gives different steps (`SlidingWindow`, `Greedy`) refuses.
        train_period: Environment steps between two turns of learning.
        gradient_steps: Updates in a turn of learning, each from its own batch.
        epsilon: Probability of a random action, a number or a schedule over training progress.
        max_grad_norm: Largest Euclidean norm of a replica's gradient; None: no bound.
        device: PyTorch's name of the device. On the CPU only `module` needs PyTorch.
        module: Makes a `torch.nn.Module` from the observation space and A; it maps a batch of observations (B, ...) to
            Q(s, ·) (B, A). It gets a Box's values in their shape, integers in their dtype and others as float32, and
            what is in no Box as a perceptron's inputs. It acts, is evaluated and gives targets in evaluation mode
            (`eval()`), and learns in training mode. None: the network described above.
        filters: Filters of 3 × 3, stride 1, with relu, below the hidden layers, for observations (channels, height,
            width), whose numbers are unchanged; 16 make the network of MinAtar's paper. 0: none.
        pixel_network: For pixels "nature" (three convolutions below 512 units) or "data_efficient" (two of 5 × 5 with
            stride 5 and 32 and 64 filters, below 256 units), whose update costs a third.
        optimizer: `Adam`, `RMSprop` or `SGD`.
        replay: "host": a `ReplayBuffer`. "device": a `replaylab.torch.DeviceReplay` on `device`; steps, draws and
            updates stay there, and on a GPU an update with its draw is one CUDA graph. Such a run has one seed.
        envs: E, environments that a learner with ``replay="device"`` steps together, each with its own exploration;
            `total_steps`, `learning_starts` and `train_period` count the steps of all.
        precision: Precision of PyTorch's networks: "float32"; "tf32", products of float32 by TF32; or "bfloat16", by
            autocast. Parameters and TD errors are float32.
    """

    online: ClassVar[bool] = False
    needs_next_action: ClassVar[bool] = False

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> Agents:
        """Return new agents, replica r made only from seeds[r].

        Raises:
            ConfigError: The network does not support such observations, actions are not Discrete, or the device does
                not exist.
        """
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(
                f"DQN needs Discrete actions, but they are in {action_space}; use a learner for continuous actions, "
                'such as replaylab.learners.SB3("TD3")'
            )
        layers = None
        if self.filters:
            layers = board_layers(self.filters, self.hidden, observation_space)
        elif self.module is None and are_pixels(observation_space):
            layers = pixel_layers(self.pixel_network, observation_space)
        if self.on_core:
            return PerceptronAgents(self, observation_space, layers, action_space, seeds)
        from replaylab.learners.dqn.modules import module_agents  # PyTorch, only now that it is needed

        return module_agents(self, observation_space, layers, action_space, seeds)
