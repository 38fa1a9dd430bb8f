#include "learning/tabular.hpp"

#include <algorithm>

#include "support/error.hpp"
#include "support/random.hpp"

namespace replaylab {

namespace {

void check_within(const char* name, const std::int64_t* values, std::int64_t count, std::int64_t first,
                  std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i)
        if (values[i] < first || values[i] >= end)
            fail("ConfigError", "`", name, "` must be in [", first, ", ", end, "), but got ", values[i],
                 "; the tables have no such row");
}

// What check() has seen, if it is still there: the arrays are the caller's, whose other threads may write to
// them.
std::int64_t within(const std::int64_t* values, std::int64_t i, std::int64_t end) {
    const std::int64_t value = *const_cast<const volatile std::int64_t*>(values + i);  // read once
    if (value < 0 || value >= end)
        fail("ConfigError", "a state or an action was changed to ", value,
             " by another thread while the tables were updated");
    return value;
}

double expected_value(const double* q, std::int64_t actions, double epsilon) {
    double best = q[0], sum = q[0];
    for (std::int64_t a = 1; a < actions; ++a) {
        best = std::max(best, q[a]);
        sum += q[a];
    }
    return (1.0 - epsilon) * best + epsilon * (sum / static_cast<double>(actions));
}

// Two numbers are drawn, whether it explores or not.
double sampled_value(const double* q, std::int64_t actions, double epsilon, Random& random) {
    const bool explore = random.uniform() < epsilon;
    const double pick = random.uniform();
    if (explore) return q[static_cast<std::int64_t>(pick * static_cast<double>(actions))];
    return *std::max_element(q, q + actions);
}

}  // namespace

void TabularUpdate::check() const {
    const std::int64_t count = replicas * rows;
    check_within("obs", obs, count, 0, states);
    check_within("next_obs", next_obs, count, 0, states);
    check_within("action", action, count, 0, actions);
    if (next_action) check_within("next_action", next_action, count, -1, actions);
}

void TabularUpdate::run() const {
    for (std::int64_t r = 0; r < replicas; ++r) {
        double* table = q + r * states * actions;
        Random random({});
        if (streams) std::copy_n(streams + 4 * r, 4, random.state().begin());
        for (std::int64_t i = r * rows; i < (r + 1) * rows; ++i) {
            const double* next = table + within(next_obs, i, states) * actions;
            const double value = !streams ? expected_value(next, actions, epsilon[r])
                                 : next_action && next_action[i] >= 0
                                     ? next[within(next_action, i, actions)]
                                     : sampled_value(next, actions, epsilon[r], random);
            double& here = table[within(obs, i, states) * actions + within(action, i, actions)];
            q_before[i] = here;
            td_error[i] = reward[i] + discount[i] * value - here;
            here += step_size[i] * td_error[i];
        }
        if (streams) std::copy_n(random.state().begin(), 4, streams + 4 * r);
    }
}

}  // namespace replaylab
