"""Transforms of a drawn step, computed the slow way from every step ever stored by a replica.

A step, and a row of a batch, is a dict from a path (a tuple) to a value. `goal` is the goal a row was relabelled
with, or None where it was not.
"""

from collections import Counter

import numpy as np


def under(path, names):
    """Whether a path is one of these names ("obs", "obs.camera") or lies below one."""
    dotted = ".".join(map(str, path)) + "."
    return any(dotted.startswith(f"{name}.") for name in names)


class TransformOracle:
    """The transforms of one replica.

    Args:
        replay: its `OracleReplica`.
        transforms: the transforms of the buffer, in any order.
    """

    def __init__(self, replay, transforms):
        named = {type(transform).__name__: transform for transform in transforms}
        self.replay = replay
        self.n_step, self.stack = named.get("NStep"), named.get("FrameStack")
        self.hindsight, self.sequence = named.get("Hindsight"), named.get("Sequence")
        self.goals_known_at = None

    # Episodes

    def is_stored(self, i):
        """Ids of the steps of i's episode that are still stored, without those beyond a removed one."""
        return self.replay.neighbors(i)

    def time(self, i):
        """Return the number of steps of its episode before step i, stored or not."""
        return self.replay.times[i]

    # Hindsight

    def goal_steps(self, drawn):
        """Ids of the steps whose goals are equally likely where step `drawn` was drawn and relabelled."""
        match self.hindsight.strategy:
            case "final":
                return self.is_stored(drawn)[-1:]
            case "future":
                return [j for j in self.is_stored(drawn) if j >= drawn]
            case "episode":
                return self.is_stored(drawn)

    def goal(self, goal_step):
        """The goal that was achieved by this step."""
        return self.replay.steps[goal_step]["next_obs", self.hindsight.achieved]

    def partner(self, path):
        """The field that another field of the goal is replaced by; None for all other fields."""
        if "desired" not in str(path) or path[-1] == self.hindsight.desired:
            return None
        first, *rest = (str(name).replace("desired", "achieved") for name in path)
        return ("next_obs" if first == "obs" else first, *rest)

    def step_of_goal(self, goal):
        """Id of the stored step that achieved a goal; goals are assumed to differ."""
        if len(self.replay.steps) != self.goals_known_at:
            self.goals_known_at = len(self.replay.steps)
            self.step_by_goal = {self.goal(j).tobytes(): j for j in self.replay.stored}
        return self.step_by_goal[goal.tobytes()]

    def seen(self, i, goal):
        """Step i, as it would have been under this goal."""
        step = self.replay.steps[i]
        if goal is None:
            return step
        new = dict(step)
        new["obs", self.hindsight.desired] = goal
        new["next_obs", self.hindsight.desired] = goal
        if pairs := {path: self.partner(path) for path in step if self.partner(path) in step}:
            achieving = self.replay.steps[self.step_of_goal(goal)]
            new |= {path: achieving[partner] for path, partner in pairs.items()}
        info = {".".join(map(str, path)): leaf[None] for path, leaf in new.items()}
        asked = step["next_obs", self.hindsight.achieved][None], goal[None], info
        new["reward",] = self.hindsight.compute_reward(*asked)[0].astype(step["reward",].dtype)
        new["terminated",] = self.hindsight.compute_terminated(*asked)[0]
        if ("truncated",) in step:
            new["truncated",] = np.bool_(step["truncated",] or (step["terminated",] and not new["terminated",]))
        return new

    # One step

    def chain(self, i, goal):
        """Ids of the steps that are taken together from step i on, itself first."""
        chain = []
        following = [j for j in self.is_stored(i) if j >= i]
        for j in following[: self.n_step.steps if self.n_step else 1]:
            chain.append(j)
            if self.n_step and self.seen(j, goal)["terminated",]:
                break
        return chain

    def frames(self, i, path, goal, *then):
        """The last k frames of a path in i's episode up to step i, followed by those in `then`; oldest first."""
        k = self.stack.length
        frames = [self.seen(j, goal)[path] for j in [j for j in self.is_stored(i) if j <= i][-k:]]
        padding = np.zeros_like(frames[0]) if self.stack.padding == "zero" else frames[0]
        return np.stack(([padding] * k + frames + list(then))[-k:])

    def of_last(self, path):
        """Whether a field comes from the last of the steps that are taken together."""
        listed = self.n_step.last if self.n_step else ()
        return path[0] in ("terminated", "truncated") or path[0].startswith("next_") or under(path, listed)

    def transition(self, i, goal):
        """Return the transform of step i only."""
        chain = self.chain(i, goal)
        last = self.seen(chain[-1], goal)
        row = {path: last[path] if self.of_last(path) else leaf for path, leaf in self.seen(i, goal).items()}
        if self.n_step:
            gamma = self.n_step.gamma
            row["reward",] = np.asarray(
                sum(gamma**k * float(self.seen(j, goal)["reward",]) for k, j in enumerate(chain)), row["reward",].dtype
            )
            row["discount",] = np.float32(0 if last["terminated",] else gamma ** len(chain))
            row["n_steps",] = np.int64(len(chain))
        for path in [path for path in row if self.stack and under(path, self.stack.fields)]:
            row[path] = self.frames(chain[-1] if self.of_last(path) else i, path, goal)
            after = (f"next_{path[0]}", *path[1:])
            if after in row:
                row[after] = self.frames(chain[-1], path, goal, last[after])
        return row

    # Sequences

    def block(self, i):
        """Ids of the stored steps of i's block, oldest first."""
        stride = self.sequence.length - self.sequence.overlap
        number = self.time(i) // stride
        return [j for j in self.is_stored(i) if self.time(j) // stride == number]

    def window(self, i, goal):
        """The sequence of i's block."""
        stride = self.sequence.length - self.sequence.overlap
        start = self.time(i) // stride * stride
        at = {self.time(j): j for j in self.is_stored(i)}
        times = range(start - self.sequence.burn_in, start + self.sequence.length)
        rows = [self.transition(at[t], goal) if t in at else None for t in times]
        first = next(row for row in rows if row)
        blank = {path: np.zeros_like(leaf) for path, leaf in first.items()}
        window = {path: np.stack([(row or blank)[path] for row in rows]) for path in first}
        window |= {path: leaf for path, leaf in first.items() if under(path, self.sequence.state)}
        return window | {("mask",): np.array([t in at for t in times])}

    # The rows of a batch

    def row(self, id_, goal=None):
        """The row with this id, all but `id`, `probability`, `weight` and `relabelled`."""
        return self.window(id_, goal) if self.sequence else self.transition(id_, goal)

    def drawn(self, id_):
        """Ids of the steps that, if drawn, give the row with this id."""
        return self.block(id_) if self.sequence else [id_]

    def allowed(self, id_, batch_size):
        """Ids of the goal steps that a relabelled row with this id can have."""
        distribution = self.replay.distribution(batch_size)
        return {goal_step for i in self.drawn(id_) if distribution[i] > 0 for goal_step in self.goal_steps(i)}

    def distribution(self, batch_size):
        """Map each stored id to the probability that a row of a batch has it."""
        distribution = self.replay.distribution(batch_size)
        if not self.sequence:
            return distribution
        total = Counter(dict.fromkeys(distribution, 0.0))
        for i, probability in distribution.items():
            total[self.block(i)[0]] += probability
        return dict(total)

    def update_priorities(self, ids, priorities):
        """Set priorities in order, of a sequence's whole block; count the ids that were still stored."""
        known = set(self.replay.stored)
        stored = [(i, priority) for i, priority in zip(ids, priorities, strict=True) if i in known]
        for i, priority in stored:
            self.replay.update_priorities(self.drawn(i), [priority] * len(self.drawn(i)))
        return len(stored)
