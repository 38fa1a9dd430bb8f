// The action of an ε-greedy policy.
#pragma once

#include <cstdint>

namespace replaylab {

// `explore` and `pick` are draws in [0, 1). Where explore < ε, `pick` chooses one of the first `choices`
// actions, else one of the equally good actions. NaN counts as the best value, and equals no other.
template <typename Value>
std::int64_t epsilon_greedy(const Value* q, std::int64_t actions, double epsilon, double explore, double pick,
                            std::int64_t choices) {
    if (explore < epsilon) return static_cast<std::int64_t>(pick * static_cast<double>(choices));
    std::int64_t best = 0, equal = 1;
    for (std::int64_t a = 1; a < actions && q[best] == q[best]; ++a) {
        if (q[a] == q[best]) {
            ++equal;
        } else if (!(q[a] < q[best])) {
            best = a;
            equal = 1;
        }
    }
    std::int64_t action = best;
    for (auto later = static_cast<std::int64_t>(pick * static_cast<double>(equal)); later > 0;)
        if (q[++action] == q[best]) --later;
    return action;
}

}  // namespace replaylab
