"""Tabular updates in plain Python, one row at a time, and the core's random stream for the actions SARSA draws."""

MASK = 2**64 - 1


class Xoshiro:
    """xoshiro256++ (Blackman & Vigna 2019)."""

    def __init__(self, words):
        self.words = [int(word) for word in words]

    def uniform(self):
        s = self.words
        total = (s[0] + s[3]) & MASK
        result = (_rotate(total, 23) + s[0]) & MASK
        shifted = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = _rotate(s[3], 45)
        return (result >> 11) * 2.0**-53


def _rotate(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


def next_value(q, target, epsilon, stream, next_action=None):
    """Return what stands for a next state with these action values."""
    if target == "greedy":
        return max(q)
    if target == "expected":
        return (1.0 - epsilon) * max(q) + epsilon * (sum(q[1:], q[0]) / len(q))
    if next_action is not None:
        return q[next_action]
    explore, pick = stream.uniform() < epsilon, stream.uniform()
    return q[int(pick * len(q))] if explore else max(q)


def learn(q, rows, target, alpha, epsilon, stream):
    """Update `q`, a list of lists, by rows (obs, action, reward, discount, next_obs, weight, next_action); return δ."""
    td_errors = []
    for obs, action, reward, discount, next_obs, weight, next_action in rows:
        value = next_value(q[next_obs], target, epsilon, stream, next_action)
        td_errors.append(reward + discount * value - q[obs][action])
        q[obs][action] += (alpha * weight) * td_errors[-1]
    return td_errors
