// What every stored sequence block is worth: how many blocks there are, the k-th, and the least that can be
// drawn, all kept up while steps come and go. A wide tree over the slots, whose nodes are recomputed from all
// their children, so that nothing drifts.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "indexes/sequence_blocks.hpp"

namespace replaylab {

class BlockIndex {
  public:
    explicit BlockIndex(std::int64_t capacity);

    // These slots hold new steps: all that were stored since the last call.
    template <typename Mass>
    void stored(const Ring& ring, const std::vector<std::int64_t>& slots, const Mass& mass) {
        for (const std::int64_t slot : slots) {
            blocks_.push_back(last_of_block(ring, slot));
            // What lay in the slot before was its block's oldest step; the rest of that block may be there.
            const std::uint32_t before = last_[static_cast<std::size_t>(slot)];
            if (before != kNone) blocks_.push_back(last_of_block(ring, before));
        }
        weigh(ring, mass);
    }

    // The steps in these slots were removed, which divides their blocks.
    template <typename Mass>
    void removed(const Ring& ring, const std::int64_t* slots, std::int64_t n, const Mass& mass) {
        for (std::int64_t k = 0; k < n; ++k) {
            const Episodes::Span span = ring.episodes()->span(slots[k]);
            if (span.step > span.low)
                blocks_.push_back(last_of_block(ring, ring.episodes()->slot(span, span.step - 1)));
            if (span.step < span.high)
                blocks_.push_back(last_of_block(ring, ring.episodes()->slot(span, span.step + 1)));
            last_[static_cast<std::size_t>(slots[k])] = kNone;
            put(slots[k], kNoBlock);
        }
        weigh(ring, mass);
    }

    // The steps in these slots have another mass(slot) than before.
    template <typename Mass>
    void changed(const Ring& ring, const std::vector<std::int64_t>& slots, const Mass& mass) {
        for (const std::int64_t slot : slots) {
            const std::int64_t last = last_[static_cast<std::size_t>(slot)];
            if (last != kNone && (blocks_.empty() || blocks_.back() != last)) blocks_.push_back(last);
        }
        weigh(ring, mass);
    }

    std::int64_t count() const { return levels_.back()[0].count; }
    double least() const { return levels_.back()[0].least; }  // positive; +inf if there is none
    std::int64_t select(std::int64_t k) const;                // the k-th block's last slot, by slot

    // The mass of the block whose last step lies in this slot.
    double mass(std::int64_t last) const { return masses_[static_cast<std::size_t>(last)]; }

    static std::int64_t nbytes(std::int64_t capacity);

  private:
    static constexpr std::int64_t kWidth = 64;
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    static constexpr double kNoBlock = -1.0;

    struct Node {
        double least = std::numeric_limits<double>::infinity();
        std::int64_t count = 0;
    };

    // Adds up the masses of the blocks in the list.
    template <typename Mass>
    void weigh(const Ring& ring, const Mass& mass) {
        std::sort(blocks_.begin(), blocks_.end());
        blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());
        for (const std::int64_t last : blocks_) {
            double sum = 0.0;
            for_block(ring, last, [&](std::int64_t slot) {
                sum += mass(slot);
                last_[static_cast<std::size_t>(slot)] = static_cast<std::uint32_t>(last);
                put(slot, slot == last ? sum : kNoBlock);
            });
        }
        blocks_.clear();
        refresh();
    }

    void put(std::int64_t slot, double mass) {
        double& held = masses_[static_cast<std::size_t>(slot)];
        if (held == mass) return;
        held = mass;
        const std::int64_t node = slot / kWidth;
        if (list_.empty() || list_.back() != node) list_.push_back(node);
    }
    void refresh();

    std::vector<double> masses_;       // by slot: of the block that the step stands for
    std::vector<std::uint32_t> last_;  // by slot: the last slot of its step's block when that was looked at
    std::vector<std::vector<Node>> levels_;
    std::vector<std::int64_t> blocks_, list_;  // scratch
};

}  // namespace replaylab
