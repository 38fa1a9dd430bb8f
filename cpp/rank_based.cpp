// Samplers by the rank of a step's priority: rank-based prioritization (Schaul et al. 2016) and greedy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "power.hpp"
#include "rank_index.hpp"
#include "sampler.hpp"

namespace replaylab {

namespace {

// Steps in the order of their priorities, largest first; of equal ones the lower slot first. A key is the
// priority's bits upside down (positive floats order as their bits do) over the slot.
class Ranking : public Sampler {
  public:
    explicit Ranking(std::int64_t capacity) : priorities_(static_cast<std::size_t>(capacity), kEmpty) {}

    // New steps get the largest priority now stored; 1 when there is none, or it is 0.
    void stored(const Ring&, Random&, const std::int64_t* slots, std::int64_t n) override {
        take_out(slots[0]);
        const float largest = index_.size() == 0 ? 0.0f : priorities_[slot_of(index_.select(0))];
        for (std::int64_t k = 0; k < n; ++k) put(slots[k], largest > 0.0f ? largest : 1.0f);
    }
    void update(const std::int64_t* slots, const double* values, std::int64_t n, bool) override {
        constexpr double kMost = std::numeric_limits<float>::max();
        for (std::int64_t k = 0; k < n; ++k)
            put(slots[k], static_cast<float>(std::min(std::abs(values[k]), kMost)));
    }

    void visit(StateVisitor& state) override {
        std::vector<float> priorities = priorities_;
        state.visit("priorities", priorities);
        if (!state.restoring()) return;
        for (const float one : priorities)
            state.must(one == kEmpty || (std::isfinite(one) && !std::signbit(one)), "priorities");
        for (std::size_t slot = 0; slot < priorities.size(); ++slot)
            if (priorities[slot] != kEmpty) put(static_cast<std::int64_t>(slot), priorities[slot]);
    }

    // Each stored step has a priority, and nothing else has.
    bool fits(const Ring& ring) const override {
        for (std::int64_t slot = 0; slot < ring.capacity(); ++slot)
            if ((priorities_[static_cast<std::size_t>(slot)] != kEmpty) != (slot < ring.size())) return false;
        return true;
    }

  protected:
    std::int64_t size() const { return index_.size(); }
    std::int64_t slot_at(std::int64_t rank) const {
        return static_cast<std::int64_t>(slot_of(index_.select(rank)));
    }
    std::int64_t rank_of(std::int64_t slot) const {
        return index_.rank(key(priorities_[static_cast<std::size_t>(slot)], slot));
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
        if (priority != kEmpty) index_.erase(key(priority, slot));
        priority = kEmpty;
    }
    void put(std::int64_t slot, float priority) {
        take_out(slot);
        priorities_[static_cast<std::size_t>(slot)] = priority;
        index_.insert(key(priority, slot));
    }

    RankIndex index_;
    std::vector<float> priorities_;  // by slot
};

// P(i) = rank(i)^−α / Σ_k k^−α, rank 1 the largest; one draw from each of B equal segments of the total.
class RankBased : public Ranking {
  public:
    RankBased(double alpha, std::int64_t normalize, std::int64_t capacity)
        : Ranking(capacity), alpha_(alpha), normalize_(normalize) {}

    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        Ranking::stored(ring, random, slots, n);
        extend_mass();
    }
    void visit(StateVisitor& state) override {
        Ranking::visit(state);
        extend_mass();
    }

    void draw(const Ring&, Random& random, std::int64_t batch, const double* beta, const Draw& out) override {
        ranks_.resize(static_cast<std::size_t>(batch));
        const double total = mass_.back();
        for (std::int64_t k = 0; k < batch; ++k) {
            const double target =
                (static_cast<double>(k) + random.uniform()) * (total / static_cast<double>(batch));
            const auto found = std::upper_bound(mass_.begin(), mass_.end(), target);
            const std::int64_t rank = std::min<std::int64_t>(found - mass_.begin(), size() - 1);
            ranks_[static_cast<std::size_t>(k)] = static_cast<double>(rank + 1);
            out.slot[k] = slot_at(rank);
            out.probability[k] = mass_at(rank) / total;
        }
        // (N·P)^−β over the largest: the rank over the last rank, to the αβ.
        double last = static_cast<double>(size());
        if (normalize_ == 1) last = *std::max_element(ranks_.begin(), ranks_.end());
        const double scale = normalize_ == 2 ? power(static_cast<double>(size()) / total, -*beta)
                                             : power(last, -alpha_ * *beta);
        power(ranks_.data(), batch, alpha_ * *beta);
        for (std::int64_t k = 0; k < batch; ++k)
            out.weight[k] = static_cast<float>(scale * ranks_[static_cast<std::size_t>(k)]);
    }

    void law(const Ring&, const std::int64_t* slots, std::int64_t n, std::int64_t, const double*,
             double* out) const override {
        for (std::int64_t k = 0; k < n; ++k) out[k] = mass_at(rank_of(slots[k])) / mass_.back();
    }

  private:
    void extend_mass() {
        while (static_cast<std::int64_t>(mass_.size()) < size()) {
            const auto rank = static_cast<double>(mass_.size() + 1);
            mass_.push_back((mass_.empty() ? 0.0 : mass_.back()) + power(rank, -alpha_));
        }
    }

    double mass_at(std::int64_t rank) const {
        const auto r = static_cast<std::size_t>(rank);
        return rank == 0 ? mass_[0] : mass_[r] - mass_[r - 1];
    }

    double alpha_;
    std::int64_t normalize_;
    std::vector<double> mass_;  // mass_[r] = Σ of the first r + 1 ranks' k^−α
    std::vector<double> ranks_;
};

// The B largest priorities.
class Greedy : public Ranking {
  public:
    using Ranking::Ranking;

    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("Greedy", ring, batch);
    }
    void draw(const Ring&, Random&, std::int64_t batch, const double*, const Draw& out) override {
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = slot_at(k);
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        const auto width = static_cast<double>(std::min(batch, ring.size()));
        for (std::int64_t k = 0; k < n; ++k) out[k] = rank_of(slots[k]) < batch ? 1.0 / width : 0.0;
    }
};

}  // namespace

std::unique_ptr<Sampler> make_rank_sampler(const SamplerConfig& config, std::int64_t capacity) {
    if (config.kind == "rank")
        return std::make_unique<RankBased>(config.option("alpha"),
                                           static_cast<std::int64_t>(config.option("normalize")), capacity);
    if (config.kind == "greedy") return std::make_unique<Greedy>(capacity);
    return nullptr;
}

}  // namespace replaylab
