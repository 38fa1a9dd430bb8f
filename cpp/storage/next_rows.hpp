// Derived next_obs: the observation after a step is not stored twice.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/row_store.hpp"
#include "support/arena.hpp"
#include "support/state.hpp"

namespace replaylab {

// A step's next observation is the observation of the row that follows it in its environment, if its bytes
// are the same; if not (the episode ended, or the caller began again), or if there is no such row yet, it has
// its own closing row, which lives as long as the step. So what was given is what comes back, always.
// Closing rows lie behind the ring in the row store, whose pages cost nothing until they are used. Of a
// compressed column, the closing row of an environment's newest step lies loose: it is mostly given up at
// once.
class NextRows {
  public:
    // pairs[c] is the source whose values column c of a closing row takes (the field next_obs.x for the
    // column obs.x), −1 for the columns it leaves out.
    NextRows(RowStore& rows, std::int64_t replica, std::int64_t num_envs, std::vector<std::int64_t> pairs)
        : rows_(rows),
          replica_(replica),
          pairs_(std::move(pairs)),
          next_(zeros_by_slot(rows.capacity())),
          newest_(static_cast<std::size_t>(num_envs), kNone) {}

    // Step number `place` of the sources, of this environment, goes to this slot; what lay there was dropped.
    void stored(std::int64_t slot, std::int64_t env, const char* const* sources, const char* const* columns,
                std::int64_t place);

    // The step in this slot is about to be overwritten.
    void dropped(std::int64_t slot);

    // Changes the next observation of this slot's step to number `place` of the sources, where they are not
    // null: in the row that shows it, which may be the next step's.
    void write(std::int64_t slot, const char* const* sources, std::int64_t place);

    // The row whose observation comes after this slot's step.
    std::int64_t row(std::int64_t slot) const { return next_[static_cast<std::size_t>(slot)]; }

    // Bytes of closing rows taken so far; and what they may come to, where every step has one.
    std::int64_t grown_nbytes() const { return used_ * grown_nbytes(1, rows_.stride()); }
    static std::int64_t grown_nbytes(std::int64_t capacity, std::int64_t stride) {
        return capacity * (stride + 8);  // its owner and its place among those given back
    }

    void visit(StateVisitor& state);

    // Whether what was restored names, for each of so many stored steps, a row that is there.
    bool fits(std::int64_t stored) const;

    static std::int64_t nbytes(std::int64_t capacity) { return 4 * capacity; }

  private:
    static constexpr std::int64_t kNone = -1;

    std::int64_t take();
    template <typename Function>
    void each_pair(Function function) const;

    RowStore& rows_;
    std::int64_t replica_;
    std::vector<std::int64_t> pairs_;
    std::vector<std::uint32_t> next_;    // by slot
    std::vector<std::int64_t> newest_;   // by environment: the slot of its newest step
    std::vector<std::uint32_t> free_;    // closing rows given back
    std::vector<std::uint32_t> owners_;  // by closing row: the environment
    std::int64_t used_ = 0;
};

}  // namespace replaylab
