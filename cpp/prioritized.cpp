#include "prioritized.hpp"

#include <algorithm>
#include <limits>

#include "error.hpp"
#include "power.hpp"

namespace replaylab {

namespace {

constexpr double kLeast = std::numeric_limits<float>::min();
constexpr double kMost = std::numeric_limits<float>::max();

}  // namespace

Prioritized::Prioritized(const SamplerConfig& config, std::int64_t capacity)
    : alpha_(config.alpha), epsilon_(config.epsilon), normalize_(config.normalize), tree_(capacity) {}

// p^α as a leaf. Zero stays zero and is never drawn; anything else stays inside float's normal range, so
// that a positive priority can always be drawn.
float Prioritized::leaf_of(double priority) const {
    if (priority == 0.0) return 0.0f;
    const double p = std::max(priority, std::numeric_limits<double>::min());
    const double leaf = alpha_ == 1.0 ? p : power(p, alpha_);
    return static_cast<float>(std::min(std::max(leaf, kLeast), kMost));
}

void Prioritized::check(const Ring& ring, std::int64_t batch) const {
    Sampler::check(ring, batch);
    if (!(tree_.total() > 0.0))
        fail("EmptyBufferError", "every one of the ", ring.size(),
             " stored steps has priority 0, so none can be drawn; give at least one a positive priority "
             "with update_priorities");
}

// A batch is one draw from each of B equal segments of the total, so that it covers the whole range.
void Prioritized::draw(const Ring& ring, Random& random, std::int64_t batch, double beta, const Draw& out) {
    targets_.resize(static_cast<std::size_t>(batch));
    const double total = tree_.total();
    const double segment = total / static_cast<double>(batch);
    for (std::int64_t k = 0; k < batch; ++k)
        targets_[static_cast<std::size_t>(k)] = (static_cast<double>(k) + random.uniform()) * segment;
    tree_.find(targets_.data(), batch, out.slot);
    for (std::int64_t k = 0; k < batch; ++k) out.probability[k] = tree_.leaf(out.slot[k]) / total;
    fill_weights(ring, batch, beta, out);
}

// w_i = (N·P(i))^−β, divided by the largest w of the buffer, of the batch, or by nothing. The largest
// weight belongs to the smallest positive leaf, so N and the total cancel: w_i = (least leaf / leaf_i)^β.
void Prioritized::fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out) const {
    if (beta == 0.0) {
        std::fill(out.weight, out.weight + n, 1.0f);
        return;
    }
    double reference = tree_.smallest_positive();
    if (normalize_ == "batch") {
        reference = std::numeric_limits<double>::infinity();
        for (std::int64_t k = 0; k < n; ++k)
            reference = std::min(reference, static_cast<double>(tree_.leaf(out.slot[k])));
    } else if (normalize_ == "none") {
        reference = tree_.total() / static_cast<double>(ring.size());
    }
    for (std::int64_t k = 0; k < n; ++k)
        out.weight[k] =
            static_cast<float>(power(reference / static_cast<double>(tree_.leaf(out.slot[k])), beta));
}

double Prioritized::probability(const Ring&, std::int64_t slot, std::int64_t) const {
    const double total = tree_.total();
    return total > 0.0 ? tree_.leaf(slot) / total : 0.0;
}

// New steps get the largest priority among the steps still stored (1 when there is none): the first of
// them after the step it overwrites is gone, and with that value now stored, the others the same.
void Prioritized::stored(const std::int64_t* slots, std::int64_t n) {
    if (tree_.leaf(slots[0]) == tree_.largest()) {
        const float zero = 0.0f;
        tree_.set(slots, &zero, 1);
    }
    const float largest = tree_.largest();
    values_.assign(static_cast<std::size_t>(n), largest > 0.0f ? largest : 1.0f);
    tree_.set(slots, values_.data(), n);
}

void Prioritized::update(const std::int64_t* slots, const double* values, std::int64_t n, bool td_errors) {
    values_.resize(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k)
        values_[static_cast<std::size_t>(k)] =
            leaf_of(td_errors ? (values[k] < 0.0 ? -values[k] : values[k]) + epsilon_ : values[k]);
    tree_.set(slots, values_.data(), n);
}

}  // namespace replaylab
