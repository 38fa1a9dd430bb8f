"""Training by N actors that step environments, S shards that store, and one learner (Ape-X, Horgan et al. 2018).

The learner is the process that calls `train`: it holds the agents, draws from a `RemoteReplay`, updates, and gives
priorities back. Actors are Ray actors that do nothing by themselves: the learner asks each for an unroll of T steps,
two calls ahead, and hands the newest weights along: one object in Ray's store every k updates, numbered by them. So
nothing polls, an actor that was cut off steps no further, and both sides keep the same pace: an update is made once the
steps that it is due at are stored, and no actor is asked for steps that the learner is far behind with.

An actor holds E environments, a copy of the policy, a `RemoteWriter`, and its own random streams, made of seed,
number and life. It explores as its number says, ε^(1 + α·i/(M − 1)). A new step gets the largest priority of its shard,
rather than the actor's own TD error: this is right for every transform and sampler as it stands (an n-step error is
known n steps later, a relabelled one never), needs no target network on the actors, and has each step learned from
soon.

At an evaluation or a checkpoint the actors have answered and the learner has caught up: so evaluations come at the same
numbers of steps and updates as in one process, and a checkpoint is a clean cut. It is the learner's own state, written
atomically after the shards have saved themselves; resuming starts new actors, with new streams.

Who dies: an actor is started again with a fresh episode, and what it was asked for and had not reported is counted and
asked for again; a shard begins again from its snapshot (`RemoteReplay`); the learner continues from its checkpoint.
Which steps exist, and when they are drawn, depends on timing: runs are not the same bit for bit.
"""

from replaylab.distributed.training.on_ray import train
from replaylab.distributed.training.options import Actors, Shards

__all__ = ["Actors", "Shards", "train"]
