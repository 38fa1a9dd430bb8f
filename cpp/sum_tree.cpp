#include "sum_tree.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "prefetch.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define REPLAYLAB_X86 1
#endif

namespace replaylab {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The largest double below a positive one.
inline double just_below(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits -= 1;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// Which of sixteen children a target below prefix[15] falls into: how many ascending prefix sums are
// ≤ target. Only comparisons, so every instruction set gives the same answer.
inline int child_portable(const double* prefix, double target) {
    int child = prefix[7] <= target ? 8 : 0;
    child += prefix[child + 3] <= target ? 4 : 0;
    child += prefix[child + 1] <= target ? 2 : 0;
    child += prefix[child] <= target ? 1 : 0;
    return child;
}

// One level of the descent for a whole batch: index[k] goes from a node to its child, targets[k] to what
// is left of it there, and the child's own prefix sums are asked for.
#define REPLAYLAB_DESCEND(NAME, CHILD)                                                                      \
    template <typename Node>                                                                                \
    void NAME(const Node* nodes, const char* below, std::int64_t below_size, std::int64_t below_lines,      \
              std::int64_t n, double* targets, std::int64_t* index) {                                       \
        for (std::int64_t k = 0; k < n; ++k) {                                                              \
            const Node& node = nodes[index[k]];                                                             \
            double target = targets[k];                                                                     \
            const double total = node.prefix[15];                                                           \
            if (target >= total) target = just_below(total);                                                \
            const int child = CHILD(node.prefix, target);                                                   \
            targets[k] = child == 0 ? target : target - node.prefix[child - 1];                             \
            index[k] = index[k] * 16 + child;                                                               \
            const char* next = below + index[k] * below_size;                                               \
            for (std::int64_t line = 0; line < below_lines; ++line) prefetch(next + 64 * line);             \
        }                                                                                                   \
    }

REPLAYLAB_DESCEND(descend_portable, child_portable)

#if defined(REPLAYLAB_X86)
__attribute__((target("avx2,popcnt"))) inline int child_avx2(const double* prefix, double target) {
    const __m256d wide = _mm256_set1_pd(target);
    unsigned mask = 0;
    for (int part = 0; part < 4; ++part) {
        const __m256d reached = _mm256_cmp_pd(_mm256_load_pd(prefix + 4 * part), wide, _CMP_LE_OQ);
        mask |= static_cast<unsigned>(_mm256_movemask_pd(reached)) << (4 * part);
    }
    return _mm_popcnt_u32(mask);
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,popcnt")
#endif
REPLAYLAB_DESCEND(descend_avx2, child_avx2)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

template <typename Node>
auto best_descend() {
#if defined(REPLAYLAB_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) return &descend_avx2<Node>;
#endif
    return &descend_portable<Node>;
}

}  // namespace

SumTree::SumTree(std::int64_t capacity) : lines_(static_cast<std::size_t>(divide_up(capacity, kWidth))) {
    leaves_ = lines_[0].leaf;
    auto children = static_cast<std::int64_t>(lines_.size());
    do {
        const std::int64_t nodes = divide_up(children, kWidth);
        changed_.emplace_back(static_cast<std::size_t>(children), std::uint8_t{0});
        levels_.emplace_back(static_cast<std::size_t>(nodes));
        for (Node& node : levels_.back()) std::fill(node.smallest, node.smallest + kWidth, kInfinity);
        children = nodes;
    } while (children > 1);
}

std::int64_t SumTree::nbytes(std::int64_t capacity) {
    std::int64_t children = divide_up(capacity, kWidth);
    std::int64_t bytes = children * static_cast<std::int64_t>(sizeof(Line));
    do {
        bytes += children;
        children = divide_up(children, kWidth);
        bytes += children * static_cast<std::int64_t>(sizeof(Node));
    } while (children > 1);
    return bytes;
}

float SumTree::smallest_positive() const {
    const Node& root = levels_.back()[0];
    return *std::min_element(root.smallest, root.smallest + kWidth);
}

float SumTree::largest() const {
    const Node& root = levels_.back()[0];
    return *std::max_element(root.largest, root.largest + kWidth);
}

void SumTree::set(const std::int64_t* slots, const float* values, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) {
        prefetch(leaves_ + slots[k]);
        const Node& node = levels_[0][static_cast<std::size_t>(slots[k] / (kWidth * kWidth))];
        for (std::size_t part = 0; part < sizeof(Node); part += 64)
            prefetch(reinterpret_cast<const char*>(&node) + part);
    }
    list_.clear();
    for (std::int64_t k = 0; k < n; ++k) {
        leaves_[slots[k]] = values[k];
        const std::int64_t line = slots[k] / kWidth;
        if (changed_[0][static_cast<std::size_t>(line)] == 0) {
            changed_[0][static_cast<std::size_t>(line)] = 1;
            list_.push_back(line);
        }
    }
    refresh_lines();
    for (std::size_t level = 1; level < levels_.size(); ++level) refresh_level(level);
    Node& root = levels_.back()[0];
    double running = 0.0;
    for (int j = 0; j < kWidth; ++j) root.prefix[j] = running += root.sum[j];
}

// Recomputes the totals of the changed leaf lines into the lowest nodes.
void SumTree::refresh_lines() {
    for (const std::int64_t line : list_) {
        changed_[0][static_cast<std::size_t>(line)] = 0;
        const float* leaf = lines_[static_cast<std::size_t>(line)].leaf;
        double sum = 0.0;
        float smallest = kInfinity, largest = 0.0f;
        for (int j = 0; j < kWidth; ++j) {
            sum += leaf[j];
            smallest = std::min(smallest, leaf[j] > 0.0f ? leaf[j] : kInfinity);
            largest = std::max(largest, leaf[j]);
        }
        Node& parent = levels_[0][static_cast<std::size_t>(line / kWidth)];
        parent.sum[line % kWidth] = sum;
        parent.smallest[line % kWidth] = smallest;
        parent.largest[line % kWidth] = largest;
    }
}

// Recomputes the prefix sums of the changed nodes of one level and passes their totals to their parents.
void SumTree::refresh_level(std::size_t level) {
    next_list_.clear();
    for (const std::int64_t child : list_) {
        const std::int64_t node = child / kWidth;
        if (changed_[level][static_cast<std::size_t>(node)] == 0) {
            changed_[level][static_cast<std::size_t>(node)] = 1;
            next_list_.push_back(node);
        }
    }
    list_.swap(next_list_);
    for (const std::int64_t index : list_) {
        changed_[level][static_cast<std::size_t>(index)] = 0;
        Node& node = levels_[level - 1][static_cast<std::size_t>(index)];
        double running = 0.0;
        for (int j = 0; j < kWidth; ++j) node.prefix[j] = running += node.sum[j];
        float smallest = node.smallest[0], largest = node.largest[0];
        for (int j = 1; j < kWidth; ++j) {
            smallest = std::min(smallest, node.smallest[j]);
            largest = std::max(largest, node.largest[j]);
        }
        Node& parent = levels_[level][static_cast<std::size_t>(index / kWidth)];
        parent.sum[index % kWidth] = running;
        parent.smallest[index % kWidth] = smallest;
        parent.largest[index % kWidth] = largest;
    }
}

void SumTree::find(double* targets, std::int64_t n, std::int64_t* slots) const {
    static const auto descend_level = best_descend<Node>();
    std::fill(slots, slots + n, 0);
    for (std::size_t level = levels_.size(); level-- > 0;) {
        const bool leaves_below = level == 0;
        const char* below = leaves_below ? reinterpret_cast<const char*>(lines_.data())
                                         : reinterpret_cast<const char*>(levels_[level - 1].data());
        descend_level(levels_[level].data(), below, leaves_below ? sizeof(Line) : sizeof(Node),
                      leaves_below ? 1 : 2, n, targets, slots);
    }
    for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t line = slots[k];
        const float* leaf = lines_[static_cast<std::size_t>(line)].leaf;
        const double total = levels_[0][static_cast<std::size_t>(line / kWidth)].sum[line % kWidth];
        double target = targets[k];
        if (target >= total) target = just_below(total);
        double running = 0.0;
        int child = 0;
        for (int j = 0; j < kWidth; ++j) {
            running += leaf[j];
            child += running <= target ? 1 : 0;
        }
        slots[k] = line * kWidth + child;
    }
}

}  // namespace replaylab
