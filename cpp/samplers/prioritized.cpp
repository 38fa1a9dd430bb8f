#include "samplers/prioritized.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "samplers/sampler_table.hpp"
#include "support/error.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

constexpr double kLeast = std::numeric_limits<float>::min();
constexpr double kMost = std::numeric_limits<float>::max();

}  // namespace

Prioritized::Prioritized(const SamplerConfig& config, std::int64_t capacity, unsigned keeps)
    : tree_(capacity, keeps),
      normalize_(static_cast<Normalize>(static_cast<int>(config.option("normalize")))),
      stratified_(config.option("stratified") != 0.0),
      exponent_(config.option("exponent")),
      epsilon_(config.option("epsilon")),
      feedback_(static_cast<Feedback>(static_cast<int>(config.option("feedback")))),
      block_length_(static_cast<std::int64_t>(config.option("block_length"))),
      ever_(config.option("ever") != 0.0),
      replace_(config.option("replace") != 0.0) {}

void Prioritized::check(const Ring& ring, std::int64_t batch) const {
    Sampler::check(ring, batch);
    if (batch % block_length_ != 0)
        fail("ConfigError",
             "`batch_size` must be a multiple of the sampler's `block_length`, but got batch_size=", batch,
             ", block_length=", block_length_, "; ask for ", (batch / block_length_ + 1) * block_length_,
             " rows, or for blocks of a length that divides ", batch);
    if (!(tree_.total() > 0.0)) refuse_zeros(ring);
    if (replace_) return;
    std::int64_t drawable = ring.size();
    for (std::int64_t slot = 0; slot < ring.used() && some_zero_; ++slot)
        drawable -= ring.shows(slot) && tree_.leaf(slot) == 0.0f;
    need("Prioritized(replace=False)", ring, batch, drawable);
}

// A batch is one draw from each of B/L equal segments of the total, so that it covers the whole range, or B/L
// independent draws from all of it; each draw stands for a block of L rows. With segments row k's chance of a
// step then depends on k, but the mean over the rows is exactly p^α / Σ p^α: the segments together are the
// whole range. A target may be rounded up to a segment's end, or the total: find() still gives a positive
// leaf.
void Prioritized::draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
                       const Draw& out) {
    if (!replace_) return draw_distinct(ring, random, batch, *beta, out);
    const std::int64_t blocks = batch / block_length_;
    scratch_.resize(static_cast<std::size_t>(blocks));
    const double total = tree_.total();
    const double segment = stratified_ ? total / static_cast<double>(blocks) : total;
    for (std::int64_t k = 0; k < blocks; ++k) {
        const double segments_before = stratified_ ? static_cast<double>(k) : 0.0;
        scratch_[static_cast<std::size_t>(k)] = (segments_before + random.uniform()) * segment;
    }
    tree_.find(scratch_.data(), blocks, out.slot);
    if (block_length_ > 1) spread(ring, random, blocks, out.slot);
    for (std::int64_t k = 0; k < batch; ++k) out.probability[k] = tree_.leaf(out.slot[k]) / total;
    fill_weights(ring, batch, *beta, out);
}

// Each row by the sampling distribution of the leaves that were not drawn yet, which are 0 until the batch is
// complete.
void Prioritized::draw_distinct(const Ring& ring, Random& random, std::int64_t batch, double beta,
                                const Draw& out) {
    const double total = tree_.total();
    values_.resize(static_cast<std::size_t>(batch));
    const float zero = 0.0f;
    for (std::int64_t k = 0; k < batch; ++k) {
        double target = random.uniform() * tree_.total();
        tree_.find(&target, 1, out.slot + k);
        values_[static_cast<std::size_t>(k)] = tree_.leaf(out.slot[k]);
        out.probability[k] = tree_.leaf(out.slot[k]) / total;
        tree_.set(out.slot + k, &zero, 1);
    }
    tree_.set(out.slot, values_.data(), batch);
    fill_weights(ring, batch, beta, out);
}

// Makes L rows of every drawn leaf. The stored steps, in order of age, are cut into cells of L steps with one
// random offset (those at the two ends may be shorter); a draw chooses the cell its step lies in.
void Prioritized::spread(const Ring& ring, Random& random, std::int64_t blocks, std::int64_t* leaves) {
    const std::int64_t length = block_length_;
    const auto offset = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(length)));
    drawn_.assign(leaves, leaves + blocks);
    for (const std::int64_t drawn : drawn_) {
        const std::int64_t newest = (ring.age(shown(drawn)) + offset) / length * length - offset;
        const std::int64_t oldest = std::min(newest + length, ring.size()) - 1;
        fill_block(ring, random.uniform(), oldest, std::max<std::int64_t>(newest, 0), leaves);
        leaves += length;
    }
}

// L rows at equal distances in the cell's running sum, u of a distance from its beginning: a step's share of
// the rows is on average its share of the cell, so that its chance in the batch is the sampling
// distribution's. Sums are counted in distances, and compared with u alone: so L equal steps come once each,
// whatever is rounded.
void Prioritized::fill_block(const Ring& ring, double u, std::int64_t oldest, std::int64_t newest,
                             std::int64_t* leaves) {
    cell_.clear();
    ends_.clear();
    double sum = 0.0;
    for (std::int64_t age = oldest; age >= newest; --age) {
        const std::int64_t leaf = leaf_of(ring.slot_of_age(age));
        if (!(tree_.leaf(leaf) > 0.0f)) continue;
        cell_.push_back(leaf);
        ends_.push_back(sum += tree_.leaf(leaf));
    }
    const double distance = sum / static_cast<double>(block_length_);
    std::size_t step = 0;
    for (std::int64_t row = 0; row < block_length_; ++row) {
        while (step + 1 < cell_.size() && ends_[step] / distance - static_cast<double>(row) <= u) ++step;
        leaves[row] = cell_[step];
    }
}

// w_i = (N·P(i))^−β, divided by the largest w of the buffer, of the batch, or by nothing. The largest
// weight belongs to the smallest positive mass, so N and the total cancel: w_i = (least mass / mass_i)^β. A
// mass is a step's leaf or, where sequences are drawn, the leaves of a block together; N counts the same.
void Prioritized::fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out) {
    if (beta == 0.0) {
        std::fill(out.weight, out.weight + n, 1.0f);
        return;
    }
    scratch_.resize(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k)
        scratch_[static_cast<std::size_t>(k)] = blocks_
                                                    ? blocks_->mass(last_of_block(ring, shown(out.slot[k])))
                                                    : static_cast<double>(tree_.leaf(out.slot[k]));
    double reference = blocks_ ? blocks_->least() : static_cast<double>(tree_.smallest_positive());
    if (normalize_ == Normalize::none)
        reference = tree_.total() / static_cast<double>(blocks_ ? blocks_->count() : ring.size());
    if (normalize_ == Normalize::batch) reference = *std::min_element(scratch_.begin(), scratch_.end());
    weigh(reference, n, beta, out);
}

void Prioritized::weigh(double reference, std::int64_t n, double beta, const Draw& out) {
    for (double& mass : scratch_) mass = reference / mass;
    power(scratch_.data(), n, beta);
    std::copy(scratch_.begin(), scratch_.end(), out.weight);
}

void Prioritized::distribution(const Ring&, const std::int64_t* slots, std::int64_t n, std::int64_t,
                               const double*, double* out) const {
    const double total = tree_.total();
    for (std::int64_t k = 0; k < n; ++k) out[k] = total > 0.0 ? tree_.leaf(slots[k]) / total : 0.0;
}

std::optional<SamplingTotals> Prioritized::totals(const Ring& ring) const {
    if (!replace_) return std::nullopt;
    if (blocks_) return SamplingTotals{tree_.total(), blocks_->least(), blocks_->count()};
    return SamplingTotals{tree_.total(), tree_.smallest_positive(), ring.size()};
}

// New steps get the largest p^α among the steps still stored, or of all there ever was (1 when there is
// none): the first of them after the step it overwrites is gone, and with that value now stored, the others
// the same.
void Prioritized::stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) {
    if (powers_->leaf(slots[0]) == powers_->largest()) {
        const float zero = 0.0f;
        powers_->set(slots, &zero, 1);
    }
    const float largest = ever_ ? largest_ever_ : powers_->largest();
    values_.assign(static_cast<std::size_t>(n), largest > 0.0f ? largest : 1.0f);
    put(ring, slots, n);
    if (ring.in_blocks()) note(ring, slots, n, true);
}

void Prioritized::removed(const Ring& ring, const std::int64_t* slots, std::int64_t n) {
    values_.assign(static_cast<std::size_t>(n), 0.0f);
    put(ring, slots, n);
    if (blocks_) blocks_->removed(ring, slots, n, [this](std::int64_t slot) { return tree_.leaf(slot); });
}

void Prioritized::note(const Ring& ring, const std::int64_t* slots, std::int64_t n, bool stored) {
    const auto mass = [this](std::int64_t slot) { return tree_.leaf(leaf_of(slot)); };
    if (!blocks_) blocks_ = std::make_unique<BlockIndex>(ring.capacity());
    for (std::int64_t k = 0; k < n; ++k) {
        if (stored) moved_.push_back(slots[k]);
        if (!stored || shown(slots[k]) != slots[k]) moved_.push_back(shown(slots[k]));
    }
    if (stored)
        blocks_->stored(ring, moved_, mass);
    else
        blocks_->changed(ring, moved_, mass);
    moved_.clear();
}

// Leaves are p^α. Zero stays zero and is never drawn; anything else is held inside float's normal range, so
// that a positive priority can always be drawn.
void Prioritized::update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                         bool td_errors) {
    tree_.expect(slots, n);  // while powers are computed
    if (powers_ != &tree_) powers_->expect(slots, n);
    scratch_.assign(values, values + n);
    values_.resize(static_cast<std::size_t>(n));
    if (td_errors && feedback_ == Feedback::absolute)
        for (double& p : scratch_) p = std::abs(p) + epsilon_;
    if (td_errors && feedback_ == Feedback::clipped)
        for (double& p : scratch_) p = std::max(std::abs(p), 1.0);
    if (td_errors && feedback_ == Feedback::positive)
        for (double& p : scratch_) p = std::max(p, 0.0) + epsilon_;
    const bool inverse = td_errors && std::signbit(exponent_);  // an error of 0 comes most often, not never
    for (std::size_t k = 0; k < scratch_.size(); ++k) {
        values_[k] = scratch_[k] == 0.0 && !inverse ? 0.0f : 1.0f;
        scratch_[k] = std::max(scratch_[k], std::numeric_limits<double>::min());
    }
    if (exponent_ != 1.0) power(scratch_.data(), n, exponent_);
    for (std::size_t k = 0; k < scratch_.size(); ++k)
        values_[k] *= static_cast<float>(std::min(std::max(scratch_[k], kLeast), kMost));
    if (!replace_ && !some_zero_)
        some_zero_ = std::find(values_.begin(), values_.end(), 0.0f) != values_.end();
    for (std::int64_t k = 0; k < n && ever_; ++k)
        largest_ever_ = std::max(largest_ever_, values_[static_cast<std::size_t>(k)]);
    put(ring, slots, n);
    if (ring.in_blocks()) note(ring, slots, n, false);
}

// Makes p^α of p^from.
void Prioritized::rescale(std::vector<float>& leaves, double from) const {
    for (float& leaf : leaves) {
        if (leaf == 0.0f) continue;
        double mass = from == 0.0 ? 1.0 : leaf;  // of p^0 nothing is known but that p is positive
        power(&mass, 1, from == 0.0 ? 1.0 : exponent_ / from);
        leaf = static_cast<float>(std::min(std::max(mass, kLeast), kMost));
    }
}

void Prioritized::visit(StateVisitor& state) {
    std::vector<float> leaves(static_cast<std::size_t>(tree_.capacity())), ever{largest_ever_};
    std::vector<float> exponent{static_cast<float>(exponent_)};
    for (std::size_t slot = 0; slot < leaves.size(); ++slot)
        leaves[slot] = powers_->leaf(static_cast<std::int64_t>(slot));
    state.visit("leaves", leaves);
    if (state.has("exponent")) state.visit("exponent", exponent);
    if (ever_ && state.has("largest_ever")) state.visit("largest_ever", ever);
    if (!state.restoring()) return;
    for (const float leaf : leaves) state.must(leaf >= 0.0f && leaf <= static_cast<float>(kMost), "leaves");
    if (exponent[0] != static_cast<float>(exponent_)) {
        rescale(leaves, exponent[0]);
        rescale(ever, exponent[0]);
    }
    std::vector<std::int64_t> slots(leaves.size());
    std::iota(slots.begin(), slots.end(), 0);
    powers_->set(slots.data(), leaves.data(), tree_.capacity());
    largest_ever_ = std::max(ever[0], powers_->largest());
    some_zero_ = true;  // perhaps
}

void Prioritized::restored(const Ring& ring, const std::vector<End>*) {
    const std::vector<std::int64_t> all = ring.slots();
    if (ring.in_blocks()) note(ring, all.data(), ring.size(), true);
}

bool Prioritized::fits(const Ring& ring) const {
    for (std::int64_t slot = 0; slot < tree_.capacity(); ++slot)
        if (powers_->leaf(slot) != 0.0f && (slot >= ring.used() || !ring.shows(slot))) return false;
    return true;
}

std::int64_t Prioritized::nbytes(const SamplerConfig&, std::int64_t capacity, bool in_blocks) {
    return SumTree::nbytes(capacity) + (in_blocks ? BlockIndex::nbytes(capacity) : 0);
}

SamplerFamily prioritized_samplers() {
    return {
        {"prioritized", make<Prioritized>, Prioritized::nbytes, /*feedback=*/true, /*priorities=*/"leaves"}};
}

}  // namespace replaylab
