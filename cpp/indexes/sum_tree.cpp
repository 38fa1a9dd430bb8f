#include "indexes/sum_tree.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "support/dispatch.hpp"
#include "support/prefetch.hpp"

namespace replaylab {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

inline Float4 lesser(Float4 a, Float4 b) { return a < b ? a : b; }
inline Float4 greater(Float4 a, Float4 b) { return a > b ? a : b; }
inline float least_lane(Float4 v) { return std::min(std::min(v[0], v[2]), std::min(v[1], v[3])); }
inline float greatest_lane(Float4 v) { return std::max(std::max(v[0], v[2]), std::max(v[1], v[3])); }
inline Float4 positive(Float4 v) { return v > 0.0f ? v : (Float4{} + kInfinity); }

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

// One level of the descent for a whole batch: index[k] goes from a node to its child, targets[k] to what
// is left of it there, and the child's own line is asked for. The child is the last that starts at or before
// the target, found by halving and without a branch, which at random targets would be mispredicted half the
// time. By the time the loop has gone through the batch the first child's line has come: the batch waits for
// memory about once a level, not once a draw.
template <typename Node>
REPLAYLAB_INLINE void descend(const Node* nodes, const char* below, std::int64_t below_size, std::int64_t n,
                              double* targets, std::int64_t* index) {
    for (std::int64_t k = 0; k < n; ++k) {
        const double* start = nodes[index[k]].start;
        const double target = targets[k];
        std::int64_t child = start[4] <= target ? 4 : 0;
        child += start[child + 2] <= target ? 2 : 0;
        child += start[child + 1] <= target ? 1 : 0;
        targets[k] = target - start[child];
        index[k] = index[k] * 8 + child;
        prefetch(below + index[k] * below_size);
    }
}

// The last step: index[k] goes from a line of sixteen leaves to the leaf. The prefix sums run inside each
// four (lane j of `first` is leaf 4j), then each four's offset is put on top.
template <typename Line>
REPLAYLAB_INLINE void descend_leaves(const Line* lines, std::int64_t n, const double* targets,
                                     std::int64_t* index) {
    for (std::int64_t k = 0; k < n; ++k) {
        const float* x = lines[index[k]].leaf;
        const Float4 a = load<Float4>(x), b = load<Float4>(x + 4), c = load<Float4>(x + 8),
                     d = load<Float4>(x + 12);
        const Float4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                     cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        const Float4 ef = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                     gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        const Double4 one = __builtin_convertvector(__builtin_shufflevector(ab, cd, 0, 1, 4, 5), Double4);
        const Double4 two =
            one + __builtin_convertvector(__builtin_shufflevector(ab, cd, 2, 3, 6, 7), Double4);
        const Double4 three =
            two + __builtin_convertvector(__builtin_shufflevector(ef, gh, 0, 1, 4, 5), Double4);
        const Double4 four =
            three + __builtin_convertvector(__builtin_shufflevector(ef, gh, 2, 3, 6, 7), Double4);
        const double second = four[0], third = second + four[1], fourth = third + four[2];
        const Double4 offset = {0.0, second, third, fourth};
        // How many of the sixteen running sums the target has reached is the leaf. A leaf of zero ends where
        // it begins, so it is counted with the one before and never drawn; a target that rounding has pushed
        // to this line's total counts as just below it, where the last positive leaf is.
        const Double4 wide = Double4{} + std::min(targets[k], just_below(fourth + four[3]));
        index[k] = index[k] * 16 + lanes_set(((offset + one <= wide) + (offset + two <= wide)) +
                                             ((offset + three <= wide) + (offset + four <= wide)));
    }
}

template <typename Level, typename Line>
REPLAYLAB_INLINE void descend_all(const std::vector<Level>& levels, const Line* lines, std::int64_t n,
                                  double* targets, std::int64_t* index) {
    for (std::size_t level = levels.size(); level-- > 1;)
        descend(levels[level].data(), reinterpret_cast<const char*>(levels[level - 1].data()),
                sizeof(levels[0][0]), n, targets, index);
    descend(levels[0].data(), reinterpret_cast<const char*>(lines), sizeof(Line), n, targets, index);
    descend_leaves(lines, n, targets, index);
}

}  // namespace

SumTree::SumTree(std::int64_t capacity)
    : capacity_(capacity), lines_(static_cast<std::size_t>(divide_up(capacity, kLeaves))) {
    leaves_ = lines_[0].leaf;
    auto children = static_cast<std::int64_t>(lines_.size());
    do {
        const std::int64_t nodes = divide_up(children, kChildren);
        changed_.emplace_back(static_cast<std::size_t>(children), std::uint8_t{0});
        levels_.emplace_back(static_cast<std::size_t>(nodes));
        for (Node& node : levels_.back()) std::fill(node.smallest, node.smallest + kChildren, kInfinity);
        children = nodes;
    } while (children > 1);
}

std::int64_t SumTree::nbytes(std::int64_t capacity) {
    std::int64_t children = divide_up(capacity, kLeaves);
    std::int64_t bytes = children * static_cast<std::int64_t>(sizeof(Line));
    do {
        bytes += children;
        children = divide_up(children, kChildren);
        bytes += children * static_cast<std::int64_t>(sizeof(Node));
    } while (children > 1);
    return bytes;
}

float SumTree::smallest_positive() const {
    const float* smallest = levels_.back()[0].smallest;
    return *std::min_element(smallest, smallest + kChildren);
}

float SumTree::largest() const {
    const float* largest = levels_.back()[0].largest;
    return *std::max_element(largest, largest + kChildren);
}

void SumTree::set(const std::int64_t* slots, const float* values, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) {
        prefetch(leaves_ + slots[k]);
        const auto* node = reinterpret_cast<const char*>(
            &levels_[0][static_cast<std::size_t>(slots[k]) / (kLeaves * kChildren)]);
        for (std::size_t at = 0; at < sizeof(Node); at += 64) prefetch(node + at);
    }
    // Leaves first; then each changed line and node once, level by level, however many leaves of it changed.
    // Parents are summed again from all their children, never moved by a difference: rounding cannot add up.
    list_.clear();
    for (std::int64_t k = 0; k < n; ++k) {
        leaves_[slots[k]] = values[k];
        const std::size_t line = static_cast<std::size_t>(slots[k]) / kLeaves;
        if (changed_[0][line] == 0) {
            changed_[0][line] = 1;
            list_.push_back(line);
        }
    }
    refresh_lines();
    for (std::size_t level = 1; level < levels_.size(); ++level) refresh_level(level);
    Node& root = levels_.back()[0];
    total_ = fill_starts(root.sum, root.start);
}

// Recomputes the totals of the changed leaf lines into the lowest nodes.
void SumTree::refresh_lines() {
    std::uint8_t* changed = changed_[0].data();
    Node* parents = levels_[0].data();
    for (const std::size_t line : list_) {
        changed[line] = 0;
        const float* leaf = lines_[line].leaf;
        const Float4 a = load<Float4>(leaf), b = load<Float4>(leaf + 4), c = load<Float4>(leaf + 8),
                     d = load<Float4>(leaf + 12);
        const Double4 lanes = (__builtin_convertvector(a, Double4) + __builtin_convertvector(b, Double4)) +
                              (__builtin_convertvector(c, Double4) + __builtin_convertvector(d, Double4));
        Node& parent = parents[line / kChildren];
        const std::size_t place = line % kChildren;
        parent.sum[place] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
        parent.smallest[place] =
            least_lane(lesser(lesser(positive(a), positive(b)), lesser(positive(c), positive(d))));
        parent.largest[place] = greatest_lane(greater(greater(a, b), greater(c, d)));
    }
}

// Recomputes the prefix sums of the changed nodes below one level and passes their totals to it.
void SumTree::refresh_level(std::size_t level) {
    std::uint8_t* changed = changed_[level].data();
    std::size_t kept = 0;
    // The list of children becomes that of their parents in its own memory, each parent named once.
    for (const std::size_t child : list_) {
        const std::size_t node = child / kChildren;
        list_[kept] = node;
        kept += changed[node] == 0 ? 1 : 0;
        changed[node] = 1;
    }
    list_.resize(kept);
    Node* nodes = levels_[level - 1].data();
    Node* parents = levels_[level].data();
    for (const std::size_t index : list_) {
        changed[index] = 0;
        Node& node = nodes[index];
        const double total = fill_starts(node.sum, node.start);
        Node& parent = parents[index / kChildren];
        const std::size_t place = index % kChildren;
        parent.sum[place] = total;
        parent.smallest[place] =
            least_lane(lesser(load<Float4>(node.smallest), load<Float4>(node.smallest + 4)));
        parent.largest[place] =
            greatest_lane(greater(load<Float4>(node.largest), load<Float4>(node.largest + 4)));
    }
}

void SumTree::find_portable(double* targets, std::int64_t n, std::int64_t* slots) const {
    descend_all(levels_, lines_.data(), n, targets, slots);
}

#if defined(REPLAYLAB_X86)
REPLAYLAB_AVX2 void SumTree::find_avx2(double* targets, std::int64_t n, std::int64_t* slots) const {
    descend_all(levels_, lines_.data(), n, targets, slots);
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
