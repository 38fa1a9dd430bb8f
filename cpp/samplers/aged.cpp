// Ageing: what a step is drawn in proportion to halves with every half-life of its age.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "samplers/prioritized.hpp"
#include "samplers/sampler_table.hpp"
#include "support/error.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

constexpr double kLeast = 0.9999 * std::numeric_limits<float>::min();
constexpr float kMost = 0x1p94f;  // of p^α, so that its product with the factors below is a float
constexpr double kSpan = 32.0;    // half-lives from one origin to the next
constexpr double kGone = -300.0;  // half-lives before the origin at which no p^α leaves a mass

// As time passes, masses p_i^α · 2^((t_i − now) / h) keep their proportions. So they are held relative to an
// origin, m_i = p_i^α · 2^((t_i − origin) / h): the last multiple of kSpan half-lives before the newest step.
// When that is another one, the masses are computed again from p^α, which is kept beside them. So nothing
// drifts, and masses depend only on what is stored. Those below float's normal range are 0: such steps are at
// least 126 half-lives old if p^α ≥ 1. The work is O(1) a step, because only steps with a mass have part in
// it.
//
// With a floor f, P(i) = (1 − f) m_i / Σ m + f p_i^α / Σ p^α, by a second tree. With a window, a step that
// leaves it gets priority 0.
class Aged : public Prioritized {
  public:
    Aged(const SamplerConfig& config, std::int64_t capacity)
        : Prioritized(config, capacity, SumTree::kSums | SumTree::kSmallest),
          half_life_(config.option("half_life")),
          floor_(config.option("floor")),
          window_(config.whole("window")),
          by_field_(config.option("by_field") != 0.0),
          fed_(sampler_kind(config.kind).feedback),
          unaged_(capacity, kept_unaged(config)) {
        powers_ = &unaged_;
    }

    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if ((floor_ > 0.0 ? unaged_ : tree_).total() > 0.0) return;
        if (!(unaged_.largest() > 0.0f)) refuse_zeros(ring);
        fail("EmptyBufferError", "every stored step whose priority is not 0 is so many half-lives (",
             half_life_,
             ") older than the newest that its probability is 0; give newer steps a positive priority with "
             "update_priorities, or use a `floor` or a longer `half_life`");
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override {
        if (floor_ == 0.0) return Prioritized::draw(ring, random, batch, beta, out);
        const double share = floor_share(), strata = stratified_ ? static_cast<double>(batch) : 1.0;
        unaged_targets_.clear();
        aged_targets_.clear();
        for (std::int64_t k = 0; k < batch; ++k) {
            // On a line from 0 to 1 that begins with the floor's share.
            const double place = ((stratified_ ? static_cast<double>(k) : 0.0) + random.uniform()) / strata;
            if (place < share || share == 1.0)
                unaged_targets_.push_back(place / share * unaged_.total());
            else
                aged_targets_.push_back((place - share) / (1.0 - share) * tree_.total());
        }
        const auto unaged = static_cast<std::int64_t>(unaged_targets_.size());
        unaged_.find(unaged_targets_.data(), unaged, out.slot);
        tree_.find(aged_targets_.data(), batch - unaged, out.slot + unaged);
        distribution(ring, out.slot, batch, batch, beta, out.probability);
        if (*beta == 0.0) {
            std::fill(out.weight, out.weight + batch, 1.0f);
            return;
        }
        scratch_.assign(out.probability, out.probability + batch);
        double reference = 1.0 / static_cast<double>(ring.size());
        if (normalize_ == Normalize::batch) reference = *std::min_element(scratch_.begin(), scratch_.end());
        if (normalize_ == Normalize::buffer) reference = least_probability(ring);
        weigh(reference, batch, *beta, out);
    }

    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double* beta, double* out) const override {
        if (floor_ == 0.0) return Prioritized::distribution(ring, slots, n, batch, beta, out);
        for (std::int64_t k = 0; k < n; ++k) out[k] = mixed(tree_.leaf(slots[k]), unaged_.leaf(slots[k]));
    }

    // Masses depend on the origin, so those of several replays cannot be compared.
    std::optional<SamplingTotals> totals(const Ring&) const override { return std::nullopt; }

    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        const std::int64_t first_new = ring.next_id() - n;
        first_ = std::max(first_, ring.next_id() - ring.used());
        if (window_ < ring.capacity()) {  // what leaves the window as the first of them comes
            const std::int64_t slot = slots[0] - window_ + (slots[0] < window_ ? ring.capacity() : 0);
            const float zero = 0.0f;
            unaged_.set(&slot, &zero, 1);
        }
        const double now = time(ring, slots[n - 1]);
        const bool moves = origin_at(now) != origin_;
        origin_ = origin_at(now);
        Prioritized::stored(ring, random, slots, n);
        const std::int64_t in_window = std::max(first_, std::min(first_new, ring.next_id() - window_));
        renew(ring, first_, moves ? first_new : in_window);
        if (ring.in_blocks()) note(ring, renewed_.data(), static_cast<std::int64_t>(renewed_.size()), false);
        first_ = in_window;
        while (first_ < first_new && half_lives(time(ring, ring.slot(first_))) < kGone) ++first_;
    }

    void update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                bool td_errors) override {
        if (!fed_) return;
        for (std::int64_t k = 0; k < n && by_field_; ++k) ring.expect_time(slots[k]);
        Prioritized::update(ring, slots, values, n, td_errors);
    }

    void restored(const Ring& ring, const std::vector<End>* ends) override {
        if (ring.used() == 0) return;
        origin_ = origin_at(time(ring, ring.slot_in_use(0)));
        renew(ring, ring.next_id() - ring.used(), ring.next_id());
        Prioritized::restored(ring, ends);
    }

    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks) {
        return Prioritized::nbytes(config, capacity, in_blocks) +
               SumTree::nbytes(capacity, kept_unaged(config));
    }

  protected:
    void put(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        factors_.resize(static_cast<std::size_t>(n));
        masses_.resize(factors_.size());
        for (std::int64_t k = 0; k < n; ++k) {
            float& power = values_[static_cast<std::size_t>(k)];
            const std::int64_t id = ring.id(slots[k]);
            power = ring.next_id() - id <= window_ ? std::min(power, kMost) : 0.0f;
            const double time = by_field_ ? ring.time(slots[k]) : steps_before(ring, id);
            factors_[static_cast<std::size_t>(k)] = std::max(half_lives(time), kGone);
        }
        exp2(factors_.data(), n);
        for (std::size_t k = 0; k < masses_.size(); ++k) masses_[k] = mass(values_[k], factors_[k]);
        unaged_.set(slots, values_.data(), n);
        tree_.set(slots, masses_.data(), n);
    }

  private:
    static unsigned kept_unaged(const SamplerConfig& config) {
        return config.option("floor") > 0.0 ? SumTree::kAll : SumTree::kLargest;
    }

    static float mass(double power, double factor) {
        return power * factor < kLeast ? 0.0f : static_cast<float>(power * factor);
    }

    double time(const Ring& ring, std::int64_t slot) const {
        return by_field_ ? ring.time(slot) : steps_before(ring, ring.id(slot));
    }

    // Since the last clear().
    static double steps_before(const Ring& ring, std::int64_t id) {
        return static_cast<double>(id - ring.first_id());
    }

    double origin_at(double now) const {
        const double span = kSpan * half_life_, origin = std::floor(now / span) * span;
        if (std::isfinite(origin)) return origin;
        return std::isfinite(half_life_) ? now : 0.0;  // half-lives past counting, or no ageing
    }

    double half_lives(double time) const { return (time - origin_) / half_life_; }

    // All, where ageing leaves no step a mass.
    double floor_share() const { return tree_.total() > 0.0 ? floor_ : 1.0; }

    // The probability of these leaves of the two trees, where there is a floor.
    double mixed(double aged, double unaged) const {
        const double share = floor_share();
        const double by_age = share < 1.0 ? (1.0 - share) * (aged / tree_.total()) : 0.0;
        return unaged_.total() > 0.0 ? by_age + share * (unaged / unaged_.total()) : 0.0;
    }

    // The smallest probability that is not 0. Steps in neighbouring slots are about equally old, so that the
    // smallest p^α of each block nearly tells which blocks to look at.
    double least_probability(const Ring& ring) {
        const std::int64_t oldest = ring.slot_in_use(ring.used() - 1), width = unaged_.block_size();
        factors_.clear();
        for (std::int64_t begin = 0; begin < ring.used(); begin += width) {
            const bool holds_oldest = begin < oldest && oldest < begin + width;
            const double age = half_lives(time(ring, holds_oldest ? oldest : begin));
            factors_.push_back(std::max(age, kGone));
        }
        exp2(factors_.data(), static_cast<std::int64_t>(factors_.size()));
        const auto lower = [&](std::size_t block, double power) {
            return mixed(mass(power, factors_[block]), power) * (1.0 - 1e-6);
        };
        return unaged_.least_value(
            lower, [&](std::int64_t slot) { return mixed(tree_.leaf(slot), unaged_.leaf(slot)); });
    }

    // Computes the masses of the steps from this id to before that one.
    void renew(const Ring& ring, std::int64_t id, std::int64_t end) {
        renewed_.clear();
        values_.clear();
        for (; id < end; ++id) {
            renewed_.push_back(ring.slot(id));
            values_.push_back(unaged_.leaf(renewed_.back()));
        }
        if (!renewed_.empty()) put(ring, renewed_.data(), static_cast<std::int64_t>(renewed_.size()));
    }

    double half_life_, floor_;
    std::int64_t window_;
    bool by_field_;   // time is a field's value, not the step's id
    bool fed_;        // feedback changes priorities
    SumTree unaged_;  // leaves are p^α; it has sums if there is a floor
    double origin_ = std::numeric_limits<double>::quiet_NaN();
    std::int64_t first_ = 0;  // steps with a lower id have no mass
    std::vector<double> factors_, unaged_targets_, aged_targets_;
    std::vector<float> masses_;
    std::vector<std::int64_t> renewed_;
};

}  // namespace

SamplerFamily aged_samplers() {
    return {{"aged", make<Aged>, Aged::nbytes, /*feedback=*/true, /*priorities=*/"leaves"},
            {"aged_uniform", make<Aged>, Aged::nbytes}};
}

}  // namespace replaylab
