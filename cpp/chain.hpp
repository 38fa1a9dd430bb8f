// Which stored step follows which in the same episode, for transforms that look ahead.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ring.hpp"
#include "state.hpp"

namespace replaylab {

// A step's successor is the next stored step of its environment, unless the step ended an episode. It is kept
// as the difference of their ids, so that it needs four bytes a step; steps further apart do not follow.
class Chain {
  public:
    Chain(std::int64_t capacity, std::int64_t num_envs)
        : gap_(static_cast<std::size_t>(capacity), 0), newest_(static_cast<std::size_t>(num_envs), kNone) {}

    // The ring just stored a step of this environment in this slot.
    void stored(const Ring& ring, std::int64_t slot, std::int64_t env, bool ended) {
        const std::int64_t id = ring.id(slot);
        std::int64_t& newest = newest_[static_cast<std::size_t>(env)];
        if (newest != kNone && ring.holds(newest) && id - newest <= std::numeric_limits<std::uint32_t>::max())
            gap_[static_cast<std::size_t>(ring.slot(newest))] = static_cast<std::uint32_t>(id - newest);
        gap_[static_cast<std::size_t>(slot)] = 0;
        newest = ended ? kNone : id;
    }

    // The slot of the step after this one, −1 if there is none.
    std::int64_t next(const Ring& ring, std::int64_t slot) const {
        const std::int64_t gap = gap_[static_cast<std::size_t>(slot)];
        return gap == 0 ? -1 : ring.slot(ring.id(slot) + gap);
    }

    void visit(StateVisitor& state) {
        std::vector<std::int64_t> gaps(gap_.begin(), gap_.end());
        state.visit("gaps", gaps);
        for (std::size_t slot = 0; slot < gap_.size(); ++slot)
            gap_[slot] = static_cast<std::uint32_t>(gaps[slot]);
        state.visit("newest", newest_);
    }

    static std::int64_t nbytes(std::int64_t capacity) { return 4 * capacity; }

  private:
    static constexpr std::int64_t kNone = -1;

    std::vector<std::uint32_t> gap_;    // by slot
    std::vector<std::int64_t> newest_;  // by environment: the id a next step would follow
};

}  // namespace replaylab
