"""The oracle: every step ever given is kept by id; everything else is worked out from that, the slow way."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np

from replaylab.replay import (
    Aged,
    Combined,
    CustomSampler,
    EpisodeEnds,
    FreshFirst,
    Online,
    Prioritized,
    Queue,
    RankBased,
    SlidingWindow,
    Uniform,
)

from .tree import flatten

FLOAT32 = np.finfo(np.float32)


def mass(priority, alpha):
    """Work out p^alpha as the buffer holds it: a float32, kept within the normal range if not zero."""
    if priority == 0:
        return 0.0
    return float(np.float32(min(max(priority**alpha, float(FLOAT32.tiny)), float(FLOAT32.max))))


class OracleReplica:
    """One replay of one learner.

    Args:
        capacity: steps kept, first in first out.
        sampler: the sampler whose sampling distribution is wanted.
        derived: whether a step's next_obs and an equal obs of the next step are one value, so that both change.
    """

    def __init__(self, capacity, sampler, derived=False):
        self.capacity, self.sampler, self.derived = capacity, sampler, derived
        self.steps = []  # id -> {path: array}, for every step ever given
        self.priorities = {}  # id -> priority, for every step still stored
        self.episodes = []  # id -> the ids of its whole episode, as far as it was given
        self.times = []  # id -> its place in that list
        self.envs = []  # id -> its environment
        self.open = {}  # environment -> the episode it is in
        self.ends = {}  # the last id of each episode that is over -> whether it was terminated
        self.due = 0  # a queue's: every id below was drawn
        self.largest_ever = 1.0  # of all priorities that any step had
        self.first = 0  # the lowest id that was not cleared
        self.newest = {}  # environment -> the id of its newest step
        self.after = {}  # id -> the id of the step whose obs is its next_obs, if they are one value
        self.removed = set()  # ids

    @property
    def in_use(self):
        """Ids of the stored steps and of removed ones whose place is not yet taken."""
        return range(max(self.first, len(self.steps) - self.capacity), len(self.steps))

    @property
    def stored(self):
        """Ids of the stored steps, in order."""
        return [i for i in self.in_use if i not in self.removed] if self.removed else self.in_use

    def add(self, step, env=0):
        """Append a step of an environment with the largest priority left once its place is free; 1 if that is 0.

        Or with the largest that any step ever had, if the sampler reports it.
        """
        id_ = len(self.steps)
        self.priorities.pop(id_ - self.capacity, None)
        windows = [sampler.window for sampler in self.samplers if isinstance(sampler, Aged) and sampler.window]
        reach = id_ - min(windows, default=self.capacity)
        largest = max((priority for i, priority in self.priorities.items() if i > reach), default=0.0) or 1.0
        ever = getattr(self.samplers[-1], "new_steps", "largest_stored") == "largest_ever"
        self.priorities[id_] = self.largest_ever if ever else largest
        self.steps.append(step)
        before, self.newest[env] = self.newest.get(env, -1), id_
        if self.derived and before in self.in_use:
            nexts = {path: step["obs", *path[1:]] for path in step if path[0] == "next_obs"}
            if all(self.steps[before][path].tobytes() == obs.tobytes() for path, obs in nexts.items()):
                self.after[before] = id_
        episode = self.open.setdefault(env, [])
        self.episodes.append(episode)
        self.times.append(len(episode))
        self.envs.append(env)
        episode.append(id_)
        if step.get(("terminated",), False) or step.get(("truncated",), False):
            self.end_episode(env, bool(step.get(("terminated",), False)))
        return id_

    def end_episode(self, env, terminated=False):
        """Let an environment's episode be over, if it has one."""
        if episode := self.open.pop(env, []):
            self.ends[episode[-1]] = terminated

    def write(self, ids, values):
        """Write values {path: (n, ...)} of steps, all obs before all next_obs; count the ids that were still stored."""
        before, stored = {after: id_ for id_, after in self.after.items()}, set(self.stored)
        for path in sorted(values, key=lambda path: path[0] == "next_obs"):
            for id_, value in zip(ids, values[path], strict=True):
                if id_ not in stored:
                    continue
                self.steps[id_][path] = value
                if path[0] == "next_obs" and id_ in self.after:
                    self.steps[self.after[id_]]["obs", *path[1:]] = value
                if path[0] == "obs" and id_ in before:
                    self.steps[before[id_]]["next_obs", *path[1:]] = value
        return sum(id_ in stored for id_ in ids)

    def remove(self, ids):
        """Remove steps; count the ids that were still stored."""
        stored = set(self.stored)
        self.removed |= stored.intersection(ids)
        for id_ in self.removed:
            self.priorities.pop(id_, None)
        return sum(id_ in stored for id_ in ids)

    def neighbors(self, id_):
        """Ids of the stored steps of a stored step's episode, without those beyond a removed one."""
        episode, stored = self.episodes[id_], self.in_use
        low = high = self.times[id_]
        while low > 0 and episode[low - 1] in stored and episode[low - 1] not in self.removed:
            low -= 1
        while high + 1 < len(episode) and episode[high + 1] not in self.removed:
            high += 1
        return episode[low : high + 1]

    def clear(self):
        """Drop every step; ids continue at the next multiple of the capacity, and episodes as if nothing had been."""
        self.first = -(-len(self.steps) // self.capacity) * self.capacity
        for log in (self.steps, self.episodes, self.times, self.envs):
            log += [None] * (self.first - len(log))
        self.priorities.clear()
        self.largest_ever = 1.0

    def cut_episodes(self):
        """End the open episodes as truncated at their last step, if that is stored."""
        for episode in self.open.values():
            if episode[-1] in set(self.stored) and ("truncated",) in self.steps[episode[-1]]:
                self.steps[episode[-1]]["truncated",] = np.bool_(True)
        for env in list(self.open):
            self.end_episode(env)

    def update_priorities(self, ids, priorities):
        """Set priorities in order, so the last duplicate wins; count the ids that were still stored."""
        count = 0
        for id_, priority in zip(ids, priorities, strict=True):
            if id_ in self.priorities:
                self.priorities[id_] = priority
                self.largest_ever = max(self.largest_ever, priority)
                count += 1
        return count

    @property
    def samplers(self):
        """The sampler, the one that it is made of, and so on."""
        samplers = [self.sampler]
        while hasattr(samplers[-1], "sampler"):
            samplers.append(samplers[-1].sampler)
        return samplers

    def aged(self, sampler, ids):
        """Each id's mass, and that of its age, for an `Aged` sampler."""
        alpha = getattr(sampler.sampler, "alpha", 0.0)
        masses = {i: min(mass(self.priorities[i], alpha), 2.0**94) for i in ids}
        if isinstance(sampler.sampler, Uniform):
            masses = dict.fromkeys(ids, 1.0)
        for i in ids if sampler.window else ():
            masses[i] *= i >= len(self.steps) - sampler.window
        times = {i: i if sampler.clock == "steps" else float(self.steps[i][sampler.clock,]) for i in ids}
        half_life = sampler.half_life or math.inf
        return masses, {i: masses[i] * 2.0 ** ((times[i] - times[ids[-1]]) / half_life) for i in ids}

    def drew(self, batch_size):
        """Note that a batch was drawn, of which queues take what waits."""
        if isinstance(self.sampler, FreshFirst | Queue):
            self.due = max([self.due, *(i + 1 for i in self.waiting()[:batch_size])])

    def waiting(self):
        """Ids of the stored steps that a queue has not given yet."""
        return [i for i in self.stored if i >= self.due]

    def distribution(self, batch_size, sampler=None):
        """Map each stored id to the probability that one row of a batch, picked at random, is that id."""
        ids = list(self.stored)
        n, newest = len(ids), ids[-1]
        match sampler or self.sampler:
            case Aged(floor=floor) as sampler:
                shares = zip((floor, 1 - floor), self.aged(sampler, ids), strict=True)
                parts = [(share, masses, math.fsum(masses.values())) for share, masses in shares]
                return {i: sum(share * masses[i] / total for share, masses, total in parts if total) for i in ids}
            case FreshFirst(sampler=inner):
                fresh = self.waiting()[:batch_size]
                rest = batch_size - len(fresh)
                others = self.distribution(rest, inner) if rest else dict.fromkeys(ids, 0.0)
                return {i: ((i in fresh) + rest * others[i]) / batch_size for i in ids}
            case Online():
                return {i: float(i == newest) for i in ids}
            case SlidingWindow():
                return {i: (i in ids[-batch_size:]) / batch_size for i in ids}
            case EpisodeEnds(share=share, steps=steps, truncated=truncated):
                over = [end for end, terminated in self.ends.items() if terminated or truncated]
                last = {i for end in over for i in self.episodes[end][-steps:]} & set(ids) if over else set()
                share = share if last else 0.0
                return {i: (1 - share) / n + (share / len(last) if i in last else 0.0) for i in ids}
            case Uniform():
                return dict.fromkeys(ids, 1 / n)
            case Combined(mode=mode, distinct=distinct):
                uniform = batch_size if mode == "plus" else batch_size - 1
                if distinct:
                    return {i: (1 if i == newest else uniform / (n - 1)) / (uniform + 1) for i in ids}
                return {i: (uniform / n + (i == newest)) / (uniform + 1) for i in ids}
            case Prioritized(alpha=alpha):
                masses = {i: mass(self.priorities[i], alpha) for i in ids}
                total = math.fsum(masses.values())
                return {i: mass / total if total > 0 else 0.0 for i, mass in masses.items()}
            case RankBased(alpha=alpha):
                positive = [i for i in ids if self.priorities[i] > 0]
                ranked = sorted(positive, key=lambda i: (-self.priorities[i], i % self.capacity))
                masses = {i: rank**-alpha for rank, i in enumerate(ranked, start=1)}
                return {i: masses[i] / math.fsum(masses.values()) if i in masses else 0.0 for i in ids}
            case Queue():
                due = self.waiting()[:batch_size]
                return {i: (i in due) / len(due) if due else 0.0 for i in ids}
            case CustomSampler():  # one that looks at ids only
                view = SimpleNamespace(ids=np.array(ids))
                return dict(zip(ids, self.sampler.distribution(view, batch_size).tolist(), strict=True))

    def weights(self, drawn, batch_size, beta):
        """Importance weights of a drawn batch: (N P)^-beta over the largest; ones without prioritization."""
        prioritized = self.samplers[-1]
        if not isinstance(prioritized, Prioritized | RankBased) or isinstance(self.sampler, FreshFirst):
            return np.ones(len(drawn))
        distribution, n = self.distribution(batch_size), len(self.stored)
        raw = np.array([(n * distribution[i]) ** -beta for i in drawn])
        if prioritized.normalize == "buffer":
            return raw / max((n * p) ** -beta for p in distribution.values() if p > 0)
        return raw / raw.max() if prioritized.normalize == "batch" else raw


class OracleBuffer:
    """R replicas of E environments, fed one environment step at a time. Shapes here all have R, T, E."""

    def __init__(self, capacity, *, num_envs=None, replicas=None, sampler=None, autoreset=None, derived=False):
        self.capacity, self.num_envs, self.replicas = capacity, num_envs or 1, replicas or 1
        self.sampler, self.autoreset = sampler or Uniform(), autoreset
        self.replay = [OracleReplica(capacity, self.sampler, derived) for _ in range(self.replicas)]
        self.to_skip = np.zeros((self.replicas, self.num_envs), bool)  # NEXT_STEP: the coming step is a reset

    def extend(self, tree, where, final_obs=None):
        """Store steps in the order time, then environment.

        Args:
            tree: nested fields, leaves (R, T, E, ...).
            where: bool (R, T, E); False is not stored.
            final_obs: like `tree["next_obs"]`; replaces it where an episode ended (SAME_STEP).

        Returns:
            ids (R, T, E) int64, -1 where nothing was stored.
        """
        leaves, finals = flatten(tree), flatten(final_obs if final_obs is not None else {})
        ids = np.full(where.shape, -1, np.int64)
        for r, t, e in product(*map(range, where.shape)):
            if not where[r, t, e]:
                continue
            step = {path: leaf[r, t, e].copy() for path, leaf in leaves.items()}
            ended = self.autoreset and bool(step["terminated",] or step["truncated",])
            skip, self.to_skip[r, e] = self.to_skip[r, e], False
            if self.autoreset == "next_step" and skip:
                continue
            if self.autoreset == "next_step":
                self.to_skip[r, e] = ended
            if self.autoreset == "same_step" and ended:
                step |= {("next_obs", *path): leaf[r, t, e].copy() for path, leaf in finals.items()}
            ids[r, t, e] = self.replay[r].add(step, e)
        return ids

    def clear(self):
        """Drop every step of every replica."""
        for replay in self.replay:
            replay.clear()

    def cut_episodes(self):
        """End all open episodes as truncated: their environments are reset."""
        for replay in self.replay:
            replay.cut_episodes()
        self.to_skip[:] = False

    def end_episode(self, where):
        """Let the episodes of these environments, bool (R, E), end without a mark."""
        for r, e in zip(*np.nonzero(where), strict=True):
            self.replay[r].end_episode(e)
            self.to_skip[r, e] = False

    def update_priorities(self, ids, priorities):
        """Update with ids and priorities (R, ...); return how many were still there over all replicas."""
        pairs = zip(self.replay, ids.reshape(self.replicas, -1), priorities.reshape(self.replicas, -1), strict=True)
        return sum(replay.update_priorities(i.tolist(), p.tolist()) for replay, i, p in pairs)

    def probabilities(self, ids, batch_size=None):
        """Probabilities of ids (R, ...); 0 for those no longer stored."""
        flat = ids.reshape(self.replicas, -1)
        distributions = [replay.distribution(batch_size) if replay.steps else {} for replay in self.replay]
        return np.array(
            [
                [distribution.get(i, 0.0) for i in row]
                for distribution, row in zip(distributions, flat.tolist(), strict=True)
            ]
        ).reshape(ids.shape)
