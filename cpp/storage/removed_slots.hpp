// Slots whose step was removed, so that it is not drawn: the k-th of the others, and how many are below one,
// in O(log N). One bit a slot, and a Fenwick tree over the counts of 64 bits.
#pragma once

#include <cstdint>
#include <vector>

namespace replaylab {

class RemovedSlots {
  public:
    explicit RemovedSlots(std::int64_t capacity)
        : words_(static_cast<std::size_t>((capacity + kBits - 1) / kBits)), sums_(words_.size() + 1) {}

    bool has(std::int64_t slot) const { return (word(slot) >> (slot % kBits) & 1) != 0; }

    // Adds the slot, or takes it out again.
    void flip(std::int64_t slot) {
        const std::int64_t change = has(slot) ? -1 : 1;
        words_[static_cast<std::size_t>(slot / kBits)] ^= std::uint64_t{1} << (slot % kBits);
        for (std::size_t at = static_cast<std::size_t>(slot / kBits) + 1; at < sums_.size(); at += at & -at)
            sums_[at] += change;
    }

    // The number of other slots below this one.
    std::int64_t others_below(std::int64_t slot) const {
        std::int64_t removed = 0;
        for (std::size_t at = static_cast<std::size_t>(slot / kBits); at > 0; at &= at - 1)
            removed += sums_[at];
        const std::uint64_t below = (std::uint64_t{1} << (slot % kBits)) - 1;
        if (below != 0) removed += __builtin_popcountll(word(slot) & below);
        return slot - removed;
    }

    // The k-th slot, from 0 on, of those whose step was not removed.
    std::int64_t other(std::int64_t k) const {
        std::size_t at = 0, step = 1;
        while (2 * step < sums_.size()) step *= 2;
        for (; step > 0; step /= 2) {
            if (at + step >= sums_.size()) continue;
            const std::int64_t others = kBits * static_cast<std::int64_t>(step) - sums_[at + step];
            if (others > k) continue;
            at += step;
            k -= others;
        }
        std::uint64_t left = ~words_[at];
        for (; k > 0; --k) left &= left - 1;
        return kBits * static_cast<std::int64_t>(at) + __builtin_ctzll(left);
    }

    static std::int64_t nbytes(std::int64_t capacity) { return capacity / 4 + 16; }

  private:
    static constexpr std::int64_t kBits = 64;

    std::uint64_t word(std::int64_t slot) const { return words_[static_cast<std::size_t>(slot / kBits)]; }

    std::vector<std::uint64_t> words_;
    std::vector<std::int64_t> sums_;  // Fenwick's, from 1 on
};

}  // namespace replaylab
