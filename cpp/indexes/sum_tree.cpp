#include "indexes/sum_tree.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "support/dispatch.hpp"
#include "support/prefetch.hpp"

namespace replaylab {

namespace {

// Steps of a descent before one needs a line that is asked for into the first-level cache, too: where the
// hint into the second level was ignored, a draw took 43 us in place of 18, and so 32.
constexpr std::int64_t kNear = 8;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Short vectors of the compiler's own: SSE, AVX or NEON without naming any.
using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Mask4 = std::int64_t __attribute__((vector_size(32)));

template <typename Vector, typename Scalar>
REPLAYLAB_INLINE Vector load(const Scalar* x) {
    Vector v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

// Written so that GCC makes one instruction of it.
REPLAYLAB_INLINE Double4 widened(Float4 v) { return Double4{v[0], v[1], v[2], v[3]}; }
REPLAYLAB_INLINE Double4 everywhere(double x) { return Double4{x, x, x, x}; }

// Where each of eight children starts in the running sum: inside each four, then the first four's total on
// top of the second. Starts never fall and are level exactly where a child is zero. Zero children at the end
// start at infinity, so that no target, however rounded, is past the last that can be drawn. Returns the
// total.
REPLAYLAB_INLINE double fill_starts(const double* sum, double* start) {
    start[0] = 0.0;
    start[1] = sum[0];
    start[2] = start[1] + sum[1];
    start[3] = start[2] + sum[2];
    start[4] = start[3] + sum[3];
    const double six = sum[4] + sum[5];
    const double seven = six + sum[6];
    start[5] = start[4] + sum[4];
    start[6] = start[4] + six;
    start[7] = start[4] + seven;
    const double total = start[4] + (seven + sum[7]);
    if (start[7] < total) return total;
    for (int j = 1; j < 8; ++j)
        start[j] = start[j] < total ? start[j] : std::numeric_limits<double>::infinity();
    return total;
}

// The largest double below a positive one.
REPLAYLAB_INLINE double just_below(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits -= 1;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

REPLAYLAB_INLINE std::int64_t lanes_set(Mask4 mask) { return -((mask[0] + mask[2]) + (mask[1] + mask[3])); }

// The child of a node that a target falls into, and what is left of the target there: the last child that
// starts at or before it, found by halving and without a branch, which at random targets would be
// mispredicted half the time.
REPLAYLAB_INLINE std::int64_t child_of(const double* start, double& target) {
    std::int64_t child = start[4] <= target ? 4 : 0;
    child += start[child + 2] <= target ? 2 : 0;
    child += start[child + 1] <= target ? 1 : 0;
    target -= start[child];
    return child;
}

// One level of the descent for a whole batch: index[k] goes from a node to its child, targets[k] to what is
// left of it there, and the child's own line is asked for. By the time the loop has gone through the batch
// the first child's line has come: the batch waits for memory about once a level, not once a draw.
template <typename Node, typename Child>
REPLAYLAB_INLINE void descend(const Node* nodes, const Child* below, std::int64_t n, double* targets,
                              std::int64_t* index) {
    for (std::int64_t k = 0; k < n; ++k) {
        if (k + kNear < n) prefetch_near(&nodes[index[k + kNear]]);
        index[k] = index[k] * 8 + child_of(nodes[index[k]].start, targets[k]);
        prefetch(&below[index[k]]);
    }
}

template <typename Lowest, typename Line>
REPLAYLAB_INLINE void descend_lowest(const Lowest* nodes, const Line* lines, std::int64_t n, double* targets,
                                     std::int64_t* index) {
    for (std::int64_t k = 0; k < n; ++k) {
        if (k + kNear < n) prefetch_near(&nodes[index[k + kNear]]);
        double start[8];
        fill_starts(nodes[index[k]].sum, start);
        index[k] = index[k] * 8 + child_of(start, targets[k]);
        prefetch(&lines[index[k]]);
    }
}

// The last step: index[k] goes from a line of sixteen leaves to the leaf. The prefix sums run inside each
// four (lane j of `first` is leaf 4j), then each four's offset is put on top.
template <typename Line>
REPLAYLAB_INLINE void descend_leaves(const Line* lines, std::int64_t n, const double* targets,
                                     std::int64_t* index) {
    for (std::int64_t k = 0; k < n; ++k) {
        if (k + kNear < n) prefetch_near(&lines[index[k + kNear]]);
        const float* x = lines[index[k]].leaf;
        const Double4 a = widened(load<Float4>(x)), b = widened(load<Float4>(x + 4)),
                      c = widened(load<Float4>(x + 8)), d = widened(load<Float4>(x + 12));
        const Double4 ab = __builtin_shufflevector(a, b, 0, 4, 2, 6),
                      cd = __builtin_shufflevector(c, d, 0, 4, 2, 6);
        const Double4 ef = __builtin_shufflevector(a, b, 1, 5, 3, 7),
                      gh = __builtin_shufflevector(c, d, 1, 5, 3, 7);
        const Double4 one = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
        const Double4 two = one + __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
        const Double4 three = two + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
        const Double4 four = three + __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
        const double second = four[0], third = second + four[1], fourth = third + four[2];
        const Double4 offset = {0.0, second, third, fourth};
        // How many of the sixteen running sums the target has reached is the leaf. A leaf of zero ends where
        // it begins, so it is counted with the one before and never drawn; a target that rounding has pushed
        // to this line's total counts as just below it, where the last positive leaf is.
        const Double4 wide = everywhere(std::min(targets[k], just_below(fourth + four[3])));
        index[k] = index[k] * 16 + lanes_set(((offset + one <= wide) + (offset + two <= wide)) +
                                             ((offset + three <= wide) + (offset + four <= wide)));
    }
}

template <typename Level, typename Lowest, typename Line>
REPLAYLAB_INLINE void descend_all(const std::vector<Level>& levels, const Lowest* lowest, const Line* lines,
                                  std::int64_t n, double* targets, std::int64_t* index) {
    for (std::size_t level = levels.size(); level-- > 1;)
        descend(levels[level].data(), levels[level - 1].data(), n, targets, index);
    if (!levels.empty()) descend(levels[0].data(), lowest, n, targets, index);
    descend_lowest(lowest, lines, n, targets, index);
    descend_leaves(lines, n, targets, index);
}

}  // namespace

SumTree::SumTree(std::int64_t capacity, unsigned keeps)
    : capacity_(capacity),
      keeps_(keeps),
      lines_(static_cast<std::size_t>(divide_up(capacity, kLeaves))),
      leaves_(lines_[0].leaf),
      lowest_(static_cast<std::size_t>(keeps & kSums ? divide_up(capacity, kLeaves * kChildren) : 0)),
      list_(keeps & kSums ? lines_.size() + 1 : 0),
      seen_(keeps & kSums ? lines_.size() : 0),
      smallest_(capacity),
      largest_(capacity) {
    for (auto nodes = static_cast<std::int64_t>(lowest_.size()); nodes > 1;) {
        nodes = divide_up(nodes, kChildren);
        levels_.emplace_back(static_cast<std::size_t>(nodes));
    }
}

std::int64_t SumTree::nbytes(std::int64_t capacity, unsigned keeps) {
    const std::int64_t lines = divide_up(capacity, kLeaves);
    std::int64_t bytes =
        lines * static_cast<std::int64_t>(sizeof(Line)) + 2 * Extreme<Largest>::nbytes(capacity);
    if (!(keeps & kSums)) return bytes;
    std::int64_t nodes = divide_up(lines, kChildren);
    bytes += lines * static_cast<std::int64_t>(sizeof(std::int64_t) + 1) +
             nodes * static_cast<std::int64_t>(sizeof(Lowest));
    while (nodes > 1) {
        nodes = divide_up(nodes, kChildren);
        bytes += nodes * static_cast<std::int64_t>(sizeof(Node));
    }
    return bytes;
}

void SumTree::expect(const std::int64_t* slots, std::int64_t n) const {
    for (std::int64_t k = 0; k < n; ++k) prefetch(leaves_ + slots[k]);
    for (std::int64_t k = 0; k < n && keeps_ & kSums; ++k) prefetch(lowest_of(slots[k]));
}

// Leaves first; then each changed line and node once, level by level, however many leaves of it changed.
// Parents are summed again from all their children, never moved by a difference: rounding cannot add up.
void SumTree::set(const std::int64_t* slots, const float* values, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) touch(leaves_ + slots[k]);
    for (std::int64_t k = 0; k < n && keeps_ & kSums; ++k) touch(lowest_of(slots[k]));
    const bool smallest = keeps_ & kSmallest, largest = keeps_ & kLargest;
    for (std::int64_t k = 0; k < n; ++k) {
        float& leaf = leaves_[slots[k]];
        if (smallest) smallest_.change(slots[k], leaf, values[k]);
        if (largest) largest_.change(slots[k], leaf, values[k]);
        leaf = values[k];
    }
    if (!(keeps_ & kSums)) return;
#if defined(REPLAYLAB_X86)
    static const bool avx2 = has_avx2();
    if (avx2) return refresh_avx2(slots, n);
#endif
    refresh_portable(slots, n);
}

// Lists the parents of n children, each once, and returns their number. The lists may be the same memory.
REPLAYLAB_INLINE std::int64_t list_parents(const std::int64_t* children, std::int64_t n,
                                           std::int64_t per_parent, std::uint8_t* seen,
                                           std::int64_t* parents) {
    std::int64_t listed = 0;
    for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t parent = children[k] / per_parent;
        parents[listed] = parent;
        listed += seen[parent] == 0 ? 1 : 0;
        seen[parent] = 1;
    }
    for (std::int64_t k = 0; k < listed; ++k) seen[parents[k]] = 0;
    return listed;
}

REPLAYLAB_INLINE void SumTree::refresh(const std::int64_t* slots, std::int64_t n) {
    std::int64_t* list = list_.data();
    n = list_parents(slots, n, kLeaves, seen_.data(), list);
    for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t line = list[k];
        const float* leaf = lines_[line].leaf;
        const Double4 lanes = (widened(load<Float4>(leaf)) + widened(load<Float4>(leaf + 4))) +
                              (widened(load<Float4>(leaf + 8)) + widened(load<Float4>(leaf + 12)));
        lowest_[line / kChildren].sum[line % kChildren] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    }
    // A node's prefix sums, and its total.
    const auto refreshed = [this](std::size_t level, std::int64_t index) {
        double unused[kChildren];
        if (level == 0) return fill_starts(lowest_[index].sum, unused);
        Node& node = levels_[level - 1][index];
        return fill_starts(node.sum, node.start);
    };
    for (std::size_t level = 0; level < levels_.size(); ++level) {
        n = list_parents(list, n, kChildren, seen_.data(), list);
        for (std::int64_t k = 0; k < n; ++k)
            levels_[level][list[k] / kChildren].sum[list[k] % kChildren] = refreshed(level, list[k]);
    }
    total_ = refreshed(levels_.size(), 0);
}

void SumTree::refresh_portable(const std::int64_t* slots, std::int64_t n) { refresh(slots, n); }

#if defined(REPLAYLAB_X86)
REPLAYLAB_AVX2 void SumTree::refresh_avx2(const std::int64_t* slots, std::int64_t n) { refresh(slots, n); }
#endif

void SumTree::find_portable(double* targets, std::int64_t n, std::int64_t* slots) const {
    descend_all(levels_, lowest_.data(), lines_.data(), n, targets, slots);
}

#if defined(REPLAYLAB_X86)
REPLAYLAB_AVX2 void SumTree::find_avx2(double* targets, std::int64_t n, std::int64_t* slots) const {
    descend_all(levels_, lowest_.data(), lines_.data(), n, targets, slots);
}
#endif

void SumTree::find(double* targets, std::int64_t n, std::int64_t* slots) const {
    std::fill(slots, slots + n, 0);
#if defined(REPLAYLAB_X86)
    static const bool avx2 = has_avx2();
    if (avx2) return find_avx2(targets, n, slots);
#endif
    find_portable(targets, n, slots);
}

}  // namespace replaylab
