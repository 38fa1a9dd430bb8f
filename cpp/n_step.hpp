// n-step returns at draw time.
#pragma once

#include <cstdint>
#include <vector>

#include "chain.hpp"
#include "row_store.hpp"

namespace replaylab {

// What Python's NStep says. steps = 0: no such transform.
struct NStepConfig {
    std::int64_t steps = 0;
    double gamma = 1.0;
};

// Where the extra columns of a batch go.
struct NStepTargets {
    float* discount;
    std::int64_t* steps;
};

// Follows each drawn step up to K steps ahead, to an episode's end or the newest step, and puts together
// one long transition: Σ γ^k r, the last step's next_obs, terminated and truncated, and its discount: γ^n, or
// 0 if it terminated.
class NStep {
  public:
    NStep(const NStepConfig& config, const RowStore& rows);

    void gather(const Ring& ring, const Chain& chain, std::int64_t replica, const std::int64_t* slots,
                const std::int64_t* places, std::int64_t n, char* const* targets, const NStepTargets& extra);

  private:
    NStepConfig config_;
    const RowStore& rows_;
    std::int64_t reward_ = -1, terminated_ = -1;
    std::vector<bool> of_last_;                // by column: is it taken from the last step?
    std::vector<char*> first_, last_targets_;  // targets, null where the other gather fills them
    std::vector<std::int64_t> last_;           // slots
};

}  // namespace replaylab
