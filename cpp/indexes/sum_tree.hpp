// A wide sum tree over the priorities of one ring: leaves are floats, sixteen to a cache line; an inner
// node has eight children, its prefix sums on one line and its children's totals on another. A draw from a
// million leaves goes down six nodes, of which the upper four stay in cache.
//
// Parents are always recomputed from all their children, never changed by a difference, so they cannot
// drift. A draw compares with prefix sums made of exactly the numbers it descends into, and a target at
// or past a node's total is moved just below it; so a zero leaf is never reached, whatever rounding does.
#pragma once

#include <cstdint>
#include <vector>

namespace replaylab {

class SumTree {
  public:
    explicit SumTree(std::int64_t capacity);

    // Sets leaves[slots[k]] = values[k] (finite, ≥ 0; of equal slots the last wins) and recomputes every
    // ancestor once.
    void set(const std::int64_t* slots, const float* values, std::int64_t n);

    // For each target in [0, total()): the leaf at which the running sum passes it. Uses the targets up.
    void find(double* targets, std::int64_t n, std::int64_t* slots) const;

    std::int64_t capacity() const { return capacity_; }
    float leaf(std::int64_t slot) const { return leaves_[slot]; }
    double total() const { return total_; }
    float smallest_positive() const;  // +inf when every leaf is zero
    float largest() const;

    // Bytes a tree of that many leaves takes.
    static std::int64_t nbytes(std::int64_t capacity);

  private:
    static constexpr std::int64_t kLeaves = 16;
    static constexpr std::int64_t kChildren = 8;

    struct alignas(64) Node {
        double start[kChildren];    // sum of the children before each
        double sum[kChildren];      // each child's own total
        float smallest[kChildren];  // each child's smallest positive leaf, +inf if it has none
        float largest[kChildren];
    };

    struct alignas(64) Line {
        float leaf[kLeaves];
    };

    void find_portable(double* targets, std::int64_t n, std::int64_t* slots) const;
    void find_avx2(double* targets, std::int64_t n, std::int64_t* slots) const;
    void refresh_lines();
    void refresh_level(std::size_t level);

    std::int64_t capacity_;
    std::vector<Line> lines_;
    float* leaves_;
    double total_ = 0.0;
    std::vector<std::vector<Node>> levels_;  // levels_[0] is above the leaves, levels_.back() is the root
    std::vector<std::vector<std::uint8_t>> changed_;  // per level: is this child already on the list?
    std::vector<std::size_t> list_;                   // the children that are
};

}  // namespace replaylab
