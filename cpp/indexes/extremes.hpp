// The smallest or the largest of many floats of which few change at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace replaylab {

// What is least: of the smallest positive number the number itself, of the largest its negative.
struct SmallestPositive {
    static float key(float x) { return x > 0.0f ? x : std::numeric_limits<float>::infinity(); }
};
struct Largest {
    static float key(float x) { return -x; }
};

// The least key of n numbers, which begin as zeros. Each block of about √n numbers has a bound that none of
// its keys is below. A change needs only the bound of its block, which stays too low if the least number of
// the block grows. Only when the least number of all has grown, the blocks with the lowest bounds are read
// again.
template <typename Order>
class Extreme {
  public:
    explicit Extreme(std::int64_t n) : n_(n) {
        while (std::int64_t{1} << 2 * shift_ < n) ++shift_;
        bounds_.assign(static_cast<std::size_t>(((n - 1) >> shift_) + 1), Order::key(0.0f));
    }

    // Number `index` was `from` and becomes `to`.
    void change(std::int64_t index, float from, float to) {
        const float key = Order::key(to);
        float& bound = bounds_[static_cast<std::size_t>(index >> shift_)];
        bound = std::min(bound, key);
        if (key <= least_)
            least_ = key, known_ = true;
        else if (Order::key(from) == least_)
            known_ = false;
    }

    // The least key of the numbers, which are passed again.
    float least(const float* numbers) const {
        while (!known_) {
            least_ = least_of(bounds_.data(), static_cast<std::int64_t>(bounds_.size()),
                              [](float x) { return x; });
            const std::int64_t block = std::find(bounds_.begin(), bounds_.end(), least_) - bounds_.begin();
            const std::int64_t begin = block << shift_;
            float& bound = bounds_[static_cast<std::size_t>(block)];
            bound = least_of(numbers + begin, std::min(block_size(), n_ - begin), Order::key);
            known_ = bound == least_;
        }
        return least_;
    }

    std::int64_t block_size() const { return std::int64_t{1} << shift_; }

    // The least value(i) over the numbers of a finite key, if there are any; lower(block, key) is a bound of
    // it for those in a block whose keys are at least `key`. Reads the numbers of few blocks if bounds are
    // tight.
    template <typename Lower, typename Value>
    double least_value(const float* numbers, const Lower& lower, const Value& value) const {
        std::vector<std::pair<double, std::size_t>> blocks;
        for (std::size_t block = 0; block < bounds_.size(); ++block)
            if (bounds_[block] < std::numeric_limits<float>::infinity())
                blocks.emplace_back(lower(block, bounds_[block]), block);
        std::iter_swap(blocks.begin(), std::min_element(blocks.begin(), blocks.end()));
        double least = std::numeric_limits<double>::infinity();
        for (const auto& [bound, block] : blocks) {
            if (bound > least) continue;
            const std::int64_t begin = static_cast<std::int64_t>(block) << shift_;
            const std::int64_t end = std::min(begin + block_size(), n_);
            bounds_[block] = least_of(numbers + begin, end - begin, Order::key);
            for (std::int64_t i = begin; i < end; ++i)
                if (numbers[i] > 0.0f) least = std::min(least, value(i));
        }
        return least;
    }

    static std::int64_t nbytes(std::int64_t n) {
        return 4 * static_cast<std::int64_t>(Extreme(n).bounds_.size());
    }

  private:
    // Eight at a time, in the compiler's own vectors.
    template <typename Key>
    static float least_of(const float* x, std::int64_t n, Key key) {
        float part[8];
        std::fill(part, part + 8, std::numeric_limits<float>::infinity());
        std::int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; ++j) part[j] = std::min(part[j], key(x[i + j]));
        for (; i < n; ++i) part[0] = std::min(part[0], key(x[i]));
        return *std::min_element(part, part + 8);
    }

    std::int64_t n_;
    int shift_ = 4;
    mutable std::vector<float> bounds_;       // by block
    mutable float least_ = Order::key(0.0f);  // of all, or a bound of it
    mutable bool known_ = true;               // the former
};

}  // namespace replaylab
