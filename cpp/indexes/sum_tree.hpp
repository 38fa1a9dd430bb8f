// A wide sum tree over the priorities of one ring: leaves are floats, sixteen to a cache line; a node has
// eight children, whose totals are one cache line. Inner nodes keep their prefix sums on another; the lowest
// nodes, which do not stay in the cache, compute theirs at each draw. A draw from a million leaves goes down
// six nodes, of which the upper five stay in the cache.
//
// Parents are always recomputed from all their children, never changed by a difference, so they cannot
// drift. A draw compares with prefix sums made of exactly the numbers it descends into, and a target at
// or past a node's total is moved just below it; so a zero leaf is never reached, whatever rounding does.
#pragma once

#include <cstdint>
#include <vector>

#include "indexes/extremes.hpp"

namespace replaylab {

class SumTree {
  public:
    // What it keeps up beside the leaves: sums for find() and total(), the smallest positive and the largest
    // leaf.
    enum Keeps : unsigned { kSums = 1, kSmallest = 2, kLargest = 4, kAll = 7 };

    explicit SumTree(std::int64_t capacity, unsigned keeps = kAll);

    // Sets leaves[slots[k]] = values[k] (finite, ≥ 0; of equal slots the last wins) and recomputes every
    // ancestor once.
    void set(const std::int64_t* slots, const float* values, std::int64_t n);

    // Asks for the memory that set() changes.
    void expect(const std::int64_t* slots, std::int64_t n) const;

    // For each target in [0, total()): the leaf at which the running sum passes it. Uses the targets up.
    void find(double* targets, std::int64_t n, std::int64_t* slots) const;

    std::int64_t capacity() const { return capacity_; }
    float leaf(std::int64_t slot) const { return leaves_[slot]; }
    double total() const { return total_; }
    float smallest_positive() const { return smallest_.least(leaves_); }  // +inf if every leaf is zero
    float largest() const { return -largest_.least(leaves_); }

    // The least value(slot) over the positive leaves, of which `block_size` make a block; see Extreme.
    std::int64_t block_size() const { return smallest_.block_size(); }
    template <typename Lower, typename Value>
    double least_value(const Lower& lower, const Value& value) const {
        return smallest_.least_value(leaves_, lower, value);
    }

    // Bytes a tree of that many leaves takes.
    static std::int64_t nbytes(std::int64_t capacity, unsigned keeps = kAll);

  private:
    static constexpr std::int64_t kLeaves = 16;
    static constexpr std::int64_t kChildren = 8;

    struct alignas(64) Lowest {
        double sum[kChildren];  // each child's total
    };

    struct alignas(64) Node {
        double start[kChildren];  // sum of the children before each
        double sum[kChildren];
    };

    struct alignas(64) Line {
        float leaf[kLeaves];
    };

    const Lowest* lowest_of(std::int64_t slot) const {
        return &lowest_[static_cast<std::size_t>(slot) / (kLeaves * kChildren)];
    }
    void find_portable(double* targets, std::int64_t n, std::int64_t* slots) const;
    void find_avx2(double* targets, std::int64_t n, std::int64_t* slots) const;
    void refresh(const std::int64_t* slots, std::int64_t n);
    void refresh_portable(const std::int64_t* slots, std::int64_t n);
    void refresh_avx2(const std::int64_t* slots, std::int64_t n);

    std::int64_t capacity_;
    unsigned keeps_;
    std::vector<Line> lines_;
    float* leaves_;
    double total_ = 0.0;
    std::vector<Lowest> lowest_;             // above the lines
    std::vector<std::vector<Node>> levels_;  // above these, the last of one node; empty if `lowest_` is one
    std::vector<std::int64_t> list_;         // scratch: lines or nodes that changed
    std::vector<std::uint8_t> seen_;         // scratch: is it on the list already?
    Extreme<SmallestPositive> smallest_;
    Extreme<Largest> largest_;
};

}  // namespace replaylab
