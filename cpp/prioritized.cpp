#include "prioritized.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "error.hpp"
#include "power.hpp"

namespace replaylab {

namespace {

constexpr double kLeast = std::numeric_limits<float>::min();
constexpr double kMost = std::numeric_limits<float>::max();

}  // namespace

Prioritized::Prioritized(const SamplerConfig& config, std::int64_t capacity)
    : tree_(capacity),
      exponent_(config.option("exponent")),
      epsilon_(config.option("epsilon")),
      feedback_(static_cast<Feedback>(static_cast<int>(config.option("feedback")))),
      normalize_(static_cast<Normalize>(static_cast<int>(config.option("normalize")))) {}

void Prioritized::check(const Ring& ring, std::int64_t batch) const {
    Sampler::check(ring, batch);
    if (!(tree_.total() > 0.0))
        fail("EmptyBufferError", "every one of the ", ring.size(),
             " stored steps has priority 0, so none can be drawn; give at least one a positive priority "
             "with update_priorities");
}

// A batch is one draw from each of B equal segments of the total, so that it covers the whole range.
void Prioritized::draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
                       const Draw& out) {
    scratch_.resize(static_cast<std::size_t>(batch));
    const double total = tree_.total();
    const double segment = total / static_cast<double>(batch);
    for (std::int64_t k = 0; k < batch; ++k)
        scratch_[static_cast<std::size_t>(k)] = (static_cast<double>(k) + random.uniform()) * segment;
    tree_.find(scratch_.data(), batch, out.slot);
    for (std::int64_t k = 0; k < batch; ++k) out.probability[k] = tree_.leaf(out.slot[k]) / total;
    fill_weights(ring, batch, *beta, out);
}

// w_i = (N·P(i))^−β, divided by the largest w of the buffer, of the batch, or by nothing. The largest
// weight belongs to the smallest positive leaf, so N and the total cancel: w_i = (least leaf / leaf_i)^β.
void Prioritized::fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out) {
    if (beta == 0.0) {
        std::fill(out.weight, out.weight + n, 1.0f);
        return;
    }
    double reference = tree_.smallest_positive();
    if (normalize_ == Normalize::none) reference = tree_.total() / static_cast<double>(ring.size());
    if (normalize_ == Normalize::batch) {
        reference = tree_.leaf(out.slot[0]);
        for (std::int64_t k = 1; k < n; ++k)
            reference = std::min(reference, static_cast<double>(tree_.leaf(out.slot[k])));
    }
    scratch_.resize(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k)
        scratch_[static_cast<std::size_t>(k)] = reference / tree_.leaf(out.slot[k]);
    power(scratch_.data(), n, beta);
    std::copy(scratch_.begin(), scratch_.end(), out.weight);
}

void Prioritized::law(const Ring&, const std::int64_t* slots, std::int64_t n, std::int64_t, const double*,
                      double* out) const {
    const double total = tree_.total();
    for (std::int64_t k = 0; k < n; ++k) out[k] = total > 0.0 ? tree_.leaf(slots[k]) / total : 0.0;
}

// New steps get the largest priority among the steps still stored (1 when there is none): the first of
// them after the step it overwrites is gone, and with that value now stored, the others the same.
void Prioritized::stored(const Ring&, Random&, const std::int64_t* slots, std::int64_t n) {
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
    scratch_.assign(values, values + n);
    values_.resize(static_cast<std::size_t>(n));
    if (td_errors && feedback_ == Feedback::absolute)
        for (double& p : scratch_) p = std::abs(p) + epsilon_;
    if (td_errors && feedback_ == Feedback::clipped)
        for (double& p : scratch_) p = std::max(std::abs(p), 1.0);
    if (td_errors && feedback_ == Feedback::positive)
        for (double& p : scratch_) p = std::max(p, 0.0) + epsilon_;
    for (std::size_t k = 0; k < scratch_.size(); ++k) {
        values_[k] = scratch_[k] == 0.0 ? 0.0f : 1.0f;
        scratch_[k] = std::max(scratch_[k], std::numeric_limits<double>::min());
    }
    if (exponent_ != 1.0) power(scratch_.data(), n, exponent_);
    for (std::size_t k = 0; k < scratch_.size(); ++k)
        values_[k] *= static_cast<float>(std::min(std::max(scratch_[k], kLeast), kMost));
    tree_.set(slots, values_.data(), n);
}

void Prioritized::visit(StateVisitor& state) {
    std::vector<float> leaves(static_cast<std::size_t>(tree_.capacity()));
    for (std::size_t slot = 0; slot < leaves.size(); ++slot)
        leaves[slot] = tree_.leaf(static_cast<std::int64_t>(slot));
    state.visit("leaves", leaves);
    if (!state.restoring()) return;
    std::vector<std::int64_t> slots(leaves.size());
    std::iota(slots.begin(), slots.end(), 0);
    tree_.set(slots.data(), leaves.data(), tree_.capacity());
}

namespace {

// The priorities of Prioritized, each belonging to another step: step π(a) is drawn with the priority that
// step a earned. π is a uniformly random permutation; with several bins it stays inside each bin of
// neighbouring slots, and among steps stored in the same round of the ring, which have about the same age.
class Permuted : public Prioritized {
  public:
    Permuted(const SamplerConfig& config, std::int64_t capacity)
        : Prioritized(config, capacity), image_(static_cast<std::size_t>(capacity)), origin_(image_.size()) {
        const auto bins = static_cast<std::int64_t>(config.option("bins"));
        in_rounds_ = bins > 1;
        width_ = (capacity + bins - 1) / bins;
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override {
        Prioritized::draw(ring, random, batch, beta, out);
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = at(image_, out.slot[k]);
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
             const double* beta, double* out) const override {
        std::vector<std::int64_t> origins;
        for (std::int64_t k = 0; k < n; ++k) origins.push_back(origin_[static_cast<std::size_t>(slots[k])]);
        Prioritized::law(ring, origins.data(), n, batch, beta, out);
    }
    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t slot = slots[k];
            const bool filled = slot < filled_;
            filled_ = std::max(filled_, slot + 1);
            if (filled && in_rounds_)
                pair(at(origin_, slot), at(image_, slot));  // the older steps close the gap
            if (!filled || in_rounds_) pair(slot, slot);
            // A random swap keeps a uniform permutation uniform and, over a growing set, makes it so.
            const std::int64_t first = in_rounds_ ? slot / width_ * width_ : 0;
            const std::int64_t last = in_rounds_ ? slot : filled_ - 1;
            const std::int64_t other =
                first + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(last - first + 1)));
            const std::int64_t mine = at(image_, slot), its = at(image_, other);
            pair(slot, its);
            pair(other, mine);
        }
        Prioritized::stored(ring, random, slots, n);
    }

    void visit(StateVisitor& state) override {
        Prioritized::visit(state);
        state.visit("image", image_);
        state.visit("origin", origin_);
        state.visit("filled", filled_);
    }

  private:
    static std::int64_t& at(std::vector<std::int64_t>& map, std::int64_t slot) {
        return map[static_cast<std::size_t>(slot)];
    }
    void pair(std::int64_t from, std::int64_t to) {
        at(image_, from) = to;
        at(origin_, to) = from;
    }

    std::vector<std::int64_t> image_, origin_;  // π and its inverse
    bool in_rounds_;
    std::int64_t width_;
    std::int64_t filled_ = 0;
};

}  // namespace

std::unique_ptr<Sampler> make_prioritized_sampler(const SamplerConfig& config, std::int64_t capacity) {
    if (config.kind == "prioritized") return std::make_unique<Prioritized>(config, capacity);
    if (config.kind == "permuted") return std::make_unique<Permuted>(config, capacity);
    return nullptr;
}

}  // namespace replaylab
