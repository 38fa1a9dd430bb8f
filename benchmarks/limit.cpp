// The limit: what this machine's memory allows for the rows and operations of benchmarks/replay.py.
//
// No Python, no checks, no ids, no weights: draw, descend, copy. One contiguous 168-byte row a step, as in
// the library; a wide sum tree of 16 children a node; everything in a batch goes stage by stage with
// prefetch, so that the cache misses of the whole batch overlap.
//
//   limit <rows> serve    reads "<operation> <calls>" lines, answers each with nanoseconds a call

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "limit.hpp"

namespace {

constexpr int kBatch = 256;
constexpr int kFan = 16;    // 16 floats: a node is one cache line

struct Row {
    float obs[17];
    float action[6];
    float next_obs[17];
    float reward;
    std::uint8_t terminated, truncated, pad[2];
};
static_assert(sizeof(Row) == 168);

/// Writes the sums of the values before each of 16 values; returns the sum of all.
inline float prefix_sums(const float* values, float* sums) {
#if defined(__AVX512F__)
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 first = _mm512_load_ps(values);
    __m512 running = first;
    for (int step = 1; step < kFan; step *= 2) {
        const __m512i from = _mm512_sub_epi32(lane, _mm512_set1_epi32(step));
        const auto kept = static_cast<__mmask16>(0xffffu << step);
        running = _mm512_add_ps(running, _mm512_maskz_permutexvar_ps(kept, from, running));
    }
    const __m512i before = _mm512_sub_epi32(lane, _mm512_set1_epi32(1));
    _mm512_store_ps(sums, _mm512_maskz_permutexvar_ps(0xfffe, before, running));
    return sums[kFan - 1] + values[kFan - 1];
#else
    float running = 0;
    for (int j = 0; j < kFan; ++j) {
        sums[j] = running;
        running += values[j];
    }
    return running;
#endif
}

/// Adds up 16 values.
inline float sum_of(const float* values) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(_mm512_load_ps(values));
#else
    float part[4] = {0, 0, 0, 0};
    for (int j = 0; j < kFan; ++j) part[j % 4] += values[j];
    return (part[0] + part[1]) + (part[2] + part[3]);
#endif
}

/// Finds the child that the target, not negative, falls into: the last whose prefix sum does not exceed it.
inline std::uint32_t child_of(const float* sums, float target) {
#if defined(__AVX512F__)
    const __mmask16 below = _mm512_cmp_ps_mask(_mm512_load_ps(sums), _mm512_set1_ps(target), _CMP_LE_OQ);
    return static_cast<std::uint32_t>(__builtin_popcount(below)) - 1;
#else
    int count = 0;
    for (int j = 0; j < kFan; ++j) count += sums[j] <= target;
    return static_cast<std::uint32_t>(count - 1);
#endif
}

/// A sum tree of 16 children a node.
///
/// Inner nodes keep their children's sums in one line and the prefix sums in another. Leaf nodes keep only
/// the priorities: a draw adds them up in registers, and an update dirties one far line instead of two.
class WideTree {
  public:
    explicit WideTree(std::size_t leaves) {
        for (std::size_t width = 1; width < leaves; width *= kFan) {
            width_.push_back(width);
            values_.push_back(allocate<float>(width * kFan));
            sums_.push_back(allocate<float>(width * kFan));
        }
        bottom_ = width_.size() - 1;
    }

    float total() const { return total_; }

    /// Fills the leaves with priorities from `draw` and builds every level.
    void fill(std::size_t leaves, const std::function<float()>& draw) {
        for (std::size_t i = 0; i < leaves; ++i) values_[bottom_][i] = draw();
        for (std::size_t level = bottom_ + 1; level-- > 0;) refresh_level(level);
    }

    /// Finds the leaf of each target in [0, total), level by level.
    void descend(float* targets, std::uint32_t* index) const {
        std::fill_n(index, kBatch, 0u);
        for (std::size_t level = 0; level < bottom_; ++level) {
            const float* next = level + 1 < bottom_ ? sums_[level + 1] : values_[bottom_];
            for (int b = 0; b < kBatch; ++b) {
                step_down(sums_[level] + std::size_t{index[b]} * kFan, targets[b], index[b]);
                __builtin_prefetch(next + std::size_t{index[b]} * kFan);
            }
        }
        alignas(kLine) float sums[kFan];
        for (int b = 0; b < kBatch; ++b) {
            prefix_sums(values_[bottom_] + std::size_t{index[b]} * kFan, sums);
            step_down(sums, targets[b], index[b]);
        }
    }

    /// Sets the priorities of a batch of leaves and recomputes their ancestors from their children.
    void update(const std::uint32_t* leaf, const float* priority) {
        for (int b = 0; b < kBatch; ++b) __builtin_prefetch(values_[bottom_] + leaf[b], 1);
        std::uint32_t node[kBatch];
        for (int b = 0; b < kBatch; ++b) {
            values_[bottom_][leaf[b]] = priority[b];
            node[b] = leaf[b] / kFan;
        }
        std::size_t level = bottom_;
        for (; width_[level] > kBatch; --level) {
            for (std::uint32_t& n : node) {
                refresh(level, n);
                n /= kFan;
            }
        }
        for (++level; level-- > 0;) refresh_level(level);  // narrower than the batch: once over is less
    }

  private:
    static void step_down(const float* sums, float& target, std::uint32_t& index) {
        const std::uint32_t child = child_of(sums, target);
        target -= sums[child];
        index = index * kFan + child;
    }

    void refresh(std::size_t level, std::size_t node) {
        const float* values = values_[level] + node * kFan;
        const float sum = level == bottom_ ? sum_of(values) : prefix_sums(values, sums_[level] + node * kFan);
        (level > 0 ? values_[level - 1][node] : total_) = sum;
    }

    void refresh_level(std::size_t level) {
        for (std::size_t node = 0; node < width_[level]; ++node) refresh(level, node);
    }

    std::size_t bottom_;
    std::vector<std::size_t> width_;
    std::vector<float*> values_, sums_;
    float total_ = 0;
};

/// The buffer, its tree and the columns of one batch.
class Limit {
  public:
    explicit Limit(std::uint32_t rows) : rows_(rows), store_(allocate<Row>(rows)), tree_(rows), random_(1) {
        for (std::uint32_t i = 0; i < rows_; ++i) {
            for (float& x : store_[i].obs) x = random_.unit();
        }
        tree_.fill(rows_, [this] { return std::pow(random_.unit(), 0.6f); });
        obs_ = allocate<float>(kBatch * 17);
        next_obs_ = allocate<float>(kBatch * 17);
        action_ = allocate<float>(kBatch * 6);
        reward_ = allocate<float>(kBatch);
        ends_ = allocate<std::uint8_t>(kBatch * 2);
    }

    void uniform() {
        for (std::uint32_t& i : index_) {
            i = random_.below(rows_);
            prefetch_row(i);
        }
        copy_rows();
    }

    void prioritized() {
        const float segment = tree_.total() / kBatch;
        for (int b = 0; b < kBatch; ++b) targets_[b] = (static_cast<float>(b) + random_.unit()) * segment;
        tree_.descend(targets_, index_);
        for (std::uint32_t& i : index_) {
            i = std::min(i, rows_ - 1);
            prefetch_row(i);
        }
        copy_rows();
    }

    void update() { tree_.update(update_index_, update_priority_); }

    void prepare_update() {
        for (int b = 0; b < kBatch; ++b) {
            update_index_[b] = random_.below(rows_);
            update_priority_[b] = random_.unit();
        }
    }

    void add() {
        std::memcpy(&store_[write_], &step_, sizeof(Row));
        write_ = write_ + 1 == rows_ ? 0 : write_ + 1;
    }

    void add_many() {
        for (int t = 0; t < 64; ++t) add();
    }

  private:
    void prefetch_row(std::uint32_t i) const {
        const char* first = reinterpret_cast<const char*>(&store_[i]);
        const char* last = first + sizeof(Row) - 1;
        for (const char* line = first; line < last; line += kLine) __builtin_prefetch(line);
        __builtin_prefetch(last);
    }

    void copy_rows() {
        for (int b = 0; b < kBatch; ++b) {
            const Row& row = store_[index_[b]];
            std::memcpy(obs_ + 17 * b, row.obs, sizeof(row.obs));
            std::memcpy(action_ + 6 * b, row.action, sizeof(row.action));
            std::memcpy(next_obs_ + 17 * b, row.next_obs, sizeof(row.next_obs));
            reward_[b] = row.reward;
            ends_[b] = row.terminated;
            ends_[kBatch + b] = row.truncated;
        }
    }

    std::uint32_t rows_;
    Row* store_;
    WideTree tree_;
    Random random_;
    Row step_{};
    std::uint32_t write_ = 0;
    alignas(kLine) std::uint32_t index_[kBatch]{}, update_index_[kBatch]{};
    alignas(kLine) float targets_[kBatch]{}, update_priority_[kBatch]{};
    float *obs_, *next_obs_, *action_, *reward_;
    std::uint8_t* ends_;
};

/// Times some calls of one operation; returns nanoseconds a call, or a negative number if there is no such
/// one.
double part(Limit& limit, const std::string& operation, int calls) {
    if (operation == "update") {  // fresh inputs between the timed calls
        double sum = 0;
        for (int c = 0; c < calls; ++c) {
            limit.prepare_update();
            const auto start = Clock::now();
            limit.update();
            sum += nanoseconds(start, Clock::now());
        }
        return sum / calls;
    }
    static const std::map<std::string, void (Limit::*)()> table = {{"uniform", &Limit::uniform},
                                                                   {"prioritized", &Limit::prioritized},
                                                                   {"add", &Limit::add},
                                                                   {"add_64", &Limit::add_many}};
    const auto entry = table.find(operation);
    if (entry == table.end()) return -1;
    const auto start = Clock::now();
    for (int c = 0; c < calls; ++c) (limit.*entry->second)();
    return nanoseconds(start, Clock::now()) / calls;
}

}  // namespace

int main(int argc, char** argv) {
    const long rows = argc > 1 ? std::atol(argv[1]) : 0;
    if (argc != 3 || std::strcmp(argv[2], "serve") != 0 || rows < kBatch || rows > (1L << 31)) {
        std::fprintf(stderr, "usage: limit <rows, at least %d> serve\n", kBatch);
        return 2;
    }
    Limit limit(static_cast<std::uint32_t>(rows));
    serve(limit);
    return 0;
}
