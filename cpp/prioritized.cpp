#include "prioritized.hpp"

#include <algorithm>
#include <cmath>
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

void Prioritized::check(const Ring& ring, std::int64_t batch) const {
    Sampler::check(ring, batch);
    if (!(tree_.total() > 0.0))
        fail("EmptyBufferError", "every one of the ", ring.size(),
             " stored steps has priority 0, so none can be drawn; give at least one a positive priority "
             "with update_priorities");
}

// A batch is one draw from each of B equal segments of the total, so that it covers the whole range.
void Prioritized::draw(const Ring& ring, Random& random, std::int64_t batch, double beta, const Draw& out) {
    scratch_.resize(static_cast<std::size_t>(batch));
    const double total = tree_.total();
    const double segment = total / static_cast<double>(batch);
    for (std::int64_t k = 0; k < batch; ++k)
        scratch_[static_cast<std::size_t>(k)] = (static_cast<double>(k) + random.uniform()) * segment;
    tree_.find(scratch_.data(), batch, out.slot);
    for (std::int64_t k = 0; k < batch; ++k) out.probability[k] = tree_.leaf(out.slot[k]) / total;
    fill_weights(ring, batch, beta, out);
}

// w_i = (N·P(i))^−β, divided by the largest w of the buffer, of the batch, or by nothing. The largest
// weight belongs to the smallest positive leaf, so N and the total cancel: w_i = (least leaf / leaf_i)^β.
void Prioritized::fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out) {
    if (beta == 0.0) {
        std::fill(out.weight, out.weight + n, 1.0f);
        return;
    }
    double reference = tree_.smallest_positive();
    if (normalize_ == "none") reference = tree_.total() / static_cast<double>(ring.size());
    if (normalize_ == "batch") {
        reference = tree_.leaf(out.slot[0]);
        for (std::int64_t k = 1; k < n; ++k)
            reference = std::min(reference, static_cast<double>(tree_.leaf(out.slot[k])));
    }
    for (std::int64_t k = 0; k < n; ++k)
        scratch_[static_cast<std::size_t>(k)] = reference / tree_.leaf(out.slot[k]);
    power(scratch_.data(), n, beta);
    std::copy(scratch_.begin(), scratch_.end(), out.weight);
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

// Leaves are p^α. Zero stays zero and is never drawn; anything else is held inside float's normal range, so
// that a positive priority can always be drawn.
void Prioritized::update(const std::int64_t* slots, const double* values, std::int64_t n, bool td_errors) {
    scratch_.resize(static_cast<std::size_t>(n));
    values_.resize(static_cast<std::size_t>(n));
    const double offset = td_errors ? epsilon_ : 0.0;
    for (std::size_t k = 0; k < scratch_.size(); ++k)
        scratch_[k] = std::max(std::abs(values[k]) + offset, std::numeric_limits<double>::min());
    if (alpha_ != 1.0) power(scratch_.data(), n, alpha_);
    for (std::size_t k = 0; k < scratch_.size(); ++k)
        values_[k] = std::abs(values[k]) + offset == 0.0
                         ? 0.0f
                         : static_cast<float>(std::min(std::max(scratch_[k], kLeast), kMost));
    tree_.set(slots, values_.data(), n);
}

}  // namespace replaylab
