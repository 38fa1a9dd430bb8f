// Samplers by the rank of a step's priority: rank-based prioritization (Schaul et al. 2016) and greedy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <vector>

#include "indexes/rank_index.hpp"
#include "indexes/sequence_blocks.hpp"
#include "samplers/prioritized.hpp"
#include "samplers/sampler_table.hpp"
#include "support/error.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

// Steps in the order of their priorities, largest first; of equal ones the lower slot first. A key is the
// priority's bits upside down (positive floats order as their bits do) over the slot. Steps of priority 0
// have no rank and are never drawn.
class Ranking : public Sampler {
  public:
    Ranking(const SamplerConfig& config, std::int64_t capacity)
        : priorities_(static_cast<std::size_t>(capacity), kEmpty), ever_(config.option("ever") != 0.0) {}

    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if (ranked() == 0) refuse_zeros(ring);
    }

    // New steps get the largest priority now stored, or there ever was; 1 when there is none, or it is 0.
    void stored(const Ring&, Random&, const std::int64_t* slots, std::int64_t n) override {
        take_out(slots[0]);
        const float stored = ranked() == 0 ? 0.0f : priorities_[slot_of(index_.select(0))];
        const float largest = ever_ ? largest_ever_ : stored;
        for (std::int64_t k = 0; k < n; ++k) put(slots[k], largest > 0.0f ? largest : 1.0f);
    }
    // A TD error of 0 is the last of the ranks, not none: only a priority that is given as 0 is. Anything
    // else is held inside float's normal range, so that a positive priority can always be drawn.
    void update(const Ring&, const std::int64_t* slots, const double* values, std::int64_t n,
                bool td_errors) override {
        constexpr double kLeast = std::numeric_limits<float>::min(),
                         kMost = std::numeric_limits<float>::max();
        for (std::int64_t k = 0; k < n; ++k) {
            const double value = std::min(std::max(std::abs(values[k]), kLeast), kMost);
            put(slots[k], td_errors || values[k] > 0.0 ? static_cast<float>(value) : 0.0f);
        }
    }

    void removed(const Ring&, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) put(slots[k], 0.0f);
    }

    void visit(StateVisitor& state) override {
        std::vector<float> priorities = priorities_, ever{largest_ever_};
        state.visit("priorities", priorities);
        if (ever_ && state.has("largest_ever")) state.visit("largest_ever", ever);
        if (!state.restoring()) return;
        for (const float one : priorities)
            state.must(one == kEmpty || (std::isfinite(one) && !std::signbit(one)), "priorities");
        for (std::size_t slot = 0; slot < priorities.size(); ++slot)
            if (priorities[slot] != kEmpty) put(static_cast<std::int64_t>(slot), priorities[slot]);
        largest_ever_ = std::max(ever[0], largest_ever_);
    }

    // Each slot in use has a priority, that of a removed step 0, and no other slot has one.
    bool fits(const Ring& ring) const override {
        for (std::int64_t slot = 0; slot < ring.capacity(); ++slot) {
            if ((priorities_[static_cast<std::size_t>(slot)] != kEmpty) != (slot < ring.used())) return false;
            if (has_rank(slot) && !ring.shows(slot)) return false;
        }
        return true;
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool in_blocks) {
        return RankIndex::nbytes(capacity) + (in_blocks ? 20 : 12) * capacity;
    }

  protected:
    std::int64_t ranked() const { return index_.size(); }
    std::int64_t slot_at(std::int64_t rank) const {
        return static_cast<std::int64_t>(slot_of(index_.select(rank)));
    }
    bool has_rank(std::int64_t slot) const { return priorities_[static_cast<std::size_t>(slot)] > 0.0f; }
    std::int64_t rank_of(std::int64_t slot) const {
        return index_.rank(key(priorities_[static_cast<std::size_t>(slot)], slot));
    }
    template <typename Function>
    void for_ranks(const Function& function) const {
        std::int64_t rank = 0;
        index_.for_each(
            [&](RankIndex::Key key) { function(rank++, static_cast<std::int64_t>(slot_of(key))); });
    }

  private:
    static constexpr float kEmpty = -1.0f;

    static RankIndex::Key key(float priority, std::int64_t slot) {
        std::uint32_t bits;
        std::memcpy(&bits, &priority, sizeof bits);
        return static_cast<RankIndex::Key>(~bits) << 32 | static_cast<RankIndex::Key>(slot);
    }
    static std::size_t slot_of(RankIndex::Key key) { return key & 0xffffffffu; }

    void take_out(std::int64_t slot) {
        float& priority = priorities_[static_cast<std::size_t>(slot)];
        if (priority > 0.0f) index_.erase(key(priority, slot));
        priority = kEmpty;
    }
    void put(std::int64_t slot, float priority) {
        take_out(slot);
        priorities_[static_cast<std::size_t>(slot)] = priority;
        if (priority > 0.0f) index_.insert(key(priority, slot));
        largest_ever_ = std::max(largest_ever_, priority);
    }

    RankIndex index_;
    std::vector<float> priorities_;  // by slot
    bool ever_;
    float largest_ever_ = 1.0f;
};

// P(i) = rank(i)^−α / Σ_k k^−α, rank 1 the largest; one draw from each of B equal segments of the total.
class RankBased : public Ranking {
  public:
    RankBased(const SamplerConfig& config, std::int64_t capacity)
        : Ranking(config, capacity),
          alpha_(config.option("alpha")),
          normalize_(static_cast<Normalize>(static_cast<int>(config.option("normalize")))) {}

    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        Ranking::stored(ring, random, slots, n);
        extend_mass();
    }
    void update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                bool td_errors) override {
        Ranking::update(ring, slots, values, n, td_errors);
        extend_mass();
    }
    void visit(StateVisitor& state) override {
        Ranking::visit(state);
        extend_mass();
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override {
        // A rank's mass never changes, only which step has the rank: so the running sums are made once, the
        // draw is a binary search in them, and the index then says whose rank it is.
        weighed_.resize(static_cast<std::size_t>(batch));
        const auto end = mass_.begin() + ranked();
        for (std::int64_t k = 0; k < batch; ++k) {
            const double target =
                (static_cast<double>(k) + random.uniform()) * (total() / static_cast<double>(batch));
            const auto found = std::upper_bound(mass_.begin(), end, target);
            const std::int64_t rank = std::min<std::int64_t>(found - mass_.begin(), ranked() - 1);
            weighed_[static_cast<std::size_t>(k)] = static_cast<double>(rank + 1);
            out.slot[k] = slot_at(rank);
            out.probability[k] = mass_at(rank) / total();
        }
        if (ring.in_blocks())
            weigh_blocks(ring, batch, *beta, out);
        else
            weigh(ring, batch, *beta, out);
    }

    void distribution(const Ring&, const std::int64_t* slots, std::int64_t n, std::int64_t, const double*,
                      double* out) const override {
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = has_rank(slots[k]) ? mass_at(rank_of(slots[k])) / total() : 0.0;
    }

  private:
    // (N·P)^−β over the largest: the rank over the last rank, to the αβ.
    void weigh(const Ring& ring, std::int64_t batch, double beta, const Draw& out) {
        double last = static_cast<double>(ranked());
        if (normalize_ == Normalize::batch) last = *std::max_element(weighed_.begin(), weighed_.end());
        const double scale = normalize_ == Normalize::none
                                 ? power(static_cast<double>(ring.size()) / total(), -beta)
                                 : power(last, -alpha_ * beta);
        power(weighed_.data(), batch, alpha_ * beta);
        for (std::int64_t k = 0; k < batch; ++k)
            out.weight[k] = static_cast<float>(scale * weighed_[static_cast<std::size_t>(k)]);
    }

    // The same of sequence blocks, whose masses all change with one rank: so they are added up again, O(N).
    void weigh_blocks(const Ring& ring, std::int64_t batch, double beta, const Draw& out) {
        blocks_.assign(static_cast<std::size_t>(ring.used()), 0.0);
        for_ranks([&](std::int64_t rank, std::int64_t slot) {
            blocks_[static_cast<std::size_t>(slot)] = mass_at(rank);
        });
        std::int64_t rows = 0;
        double reference = std::numeric_limits<double>::infinity();
        for (std::int64_t slot = 0; slot < ring.used(); ++slot) {
            if (!stands_for_row(ring, slot)) continue;
            double& mass = blocks_[static_cast<std::size_t>(slot)];
            double sum = 0.0;
            for_block(ring, slot, [&](std::int64_t step) { sum += blocks_[static_cast<std::size_t>(step)]; });
            mass = sum;
            ++rows;
            if (sum > 0.0) reference = std::min(reference, sum);
        }
        for (std::int64_t k = 0; k < batch; ++k)
            weighed_[static_cast<std::size_t>(k)] =
                blocks_[static_cast<std::size_t>(last_of_block(ring, out.slot[k]))];
        if (normalize_ == Normalize::none) reference = total() / static_cast<double>(rows);
        if (normalize_ == Normalize::batch) reference = *std::min_element(weighed_.begin(), weighed_.end());
        for (double& mass : weighed_) mass = reference / mass;
        power(weighed_.data(), batch, beta);
        std::copy(weighed_.begin(), weighed_.end(), out.weight);
    }

    void extend_mass() {
        while (static_cast<std::int64_t>(mass_.size()) < ranked()) {
            const auto rank = static_cast<double>(mass_.size() + 1);
            mass_.push_back((mass_.empty() ? 0.0 : mass_.back()) + power(rank, -alpha_));
        }
    }

    double total() const { return mass_[static_cast<std::size_t>(ranked() - 1)]; }

    double mass_at(std::int64_t rank) const {
        const auto r = static_cast<std::size_t>(rank);
        return rank == 0 ? mass_[0] : mass_[r] - mass_[r - 1];
    }

    double alpha_;
    Normalize normalize_;
    std::vector<double> mass_;  // mass_[r] = Σ of the first r + 1 ranks' k^−α
    std::vector<double> weighed_, blocks_;
};

// The B largest priorities; where sequences are drawn, the B blocks that hold the largest.
class Greedy : public Ranking {
  public:
    using Ranking::Ranking;

    void check(const Ring& ring, std::int64_t batch) const override {
        Ranking::check(ring, batch);
        const auto rows = static_cast<std::int64_t>(chosen(ring, batch).size());
        if (rows < batch && ranked() < ring.size())
            fail("EmptyBufferError", "Greedy gives `batch_size` different ",
                 ring.in_blocks() ? "sequences" : "steps", " of positive priority, but batch_size=", batch,
                 " and only ", rows, " are stored; ask for fewer, or give more a positive priority");
        need("Greedy", ring, batch, rows);
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, const double*, const Draw& out) override {
        const std::vector<std::int64_t> slots = chosen(ring, batch);
        std::copy(slots.begin(), slots.end(), out.slot);
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
        std::vector<std::int64_t> rows = chosen(ring, batch);
        std::sort(rows.begin(), rows.end());
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = std::binary_search(rows.begin(), rows.end(), slots[k])
                         ? 1.0 / static_cast<double>(rows.size())
                         : 0.0;
    }

  private:
    // The slots of the next batch, or fewer: of a block only that of the largest priority.
    std::vector<std::int64_t> chosen(const Ring& ring, std::int64_t batch) const {
        std::vector<std::int64_t> slots;
        std::unordered_set<std::int64_t> blocks;
        for (std::int64_t rank = 0; rank < ranked() && static_cast<std::int64_t>(slots.size()) < batch;
             ++rank) {
            const std::int64_t slot = slot_at(rank);
            if (ring.in_blocks() && !blocks.insert(last_of_block(ring, slot)).second) continue;
            slots.push_back(slot);
        }
        return slots;
    }
};

}  // namespace

SamplerFamily rank_based_samplers() {
    return {{"rank", make<RankBased>, Ranking::nbytes, /*feedback=*/true, /*priorities=*/"priorities",
             /*episodes=*/false, /*slots_in_32_bits=*/true},
            {"greedy", make<Greedy>, Ranking::nbytes, /*feedback=*/true, /*priorities=*/"priorities",
             /*episodes=*/false, /*slots_in_32_bits=*/true}};
}

}  // namespace replaylab
