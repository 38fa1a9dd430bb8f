// Uniform sampling: with repetition, without, and with the newest step beside it.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "indexes/block_index.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

// P = 1/N, with replacement.
class Uniform : public Sampler {
  public:
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        draw_uniform(ring, random, batch, out.slot);
        fill_alike(out, batch, 1.0 / static_cast<double>(ring.size()));
    }
    void distribution(const Ring& ring, const std::int64_t*, std::int64_t n, std::int64_t, const double*,
                      double* out) const override {
        std::fill(out, out + n, 1.0 / static_cast<double>(ring.size()));
    }
    std::optional<SamplingTotals> totals(const Ring& ring) const override {
        return SamplingTotals{static_cast<double>(ring.size()), 1.0, ring.size()};
    }
};

// P = 1/N, one row from each of B equal segments of the slots, with the same random numbers as prioritized
// draws from equal priorities. A target may be rounded up to N.
class Stratified : public Uniform {
  public:
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        const double segment = static_cast<double>(ring.size()) / static_cast<double>(batch);
        for (std::int64_t k = 0; k < batch; ++k) {
            const auto slot =
                static_cast<std::int64_t>((static_cast<double>(k) + random.uniform()) * segment);
            out.slot[k] = std::min(slot, ring.size() - 1);
        }
        ring.number_slots(batch, out.slot);
        fill_alike(out, batch, 1.0 / static_cast<double>(ring.size()));
    }
};

// Gives n different numbers below `most`, in random order (Floyd's algorithm, then a shuffle: 2n random
// numbers whatever `most` is).
class DistinctNumbers {
  public:
    void draw(Random& random, std::int64_t most, std::int64_t n, std::int64_t* out) {
        if (static_cast<std::int64_t>(taken_.size()) < most) taken_.resize(static_cast<std::size_t>(most));
        for (std::int64_t k = 0, top = most - n; k < n; ++k, ++top) {
            const auto pick = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(top) + 1));
            out[k] = taken_[static_cast<std::size_t>(pick)] ? top : pick;
            taken_[static_cast<std::size_t>(out[k])] = true;
        }
        for (std::int64_t k = 0; k < n; ++k) taken_[static_cast<std::size_t>(out[k])] = false;
        for (std::int64_t k = n; k > 1; --k)
            std::swap(out[k - 1], out[random.below(static_cast<std::uint64_t>(k))]);
    }

    static std::int64_t nbytes(std::int64_t capacity) { return capacity / 8; }

  private:
    std::vector<bool> taken_;
};

// P = 1/N, no step twice in a batch. Where sequences are drawn, the same of the blocks.
class Distinct : public Uniform {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("Uniform(replace=False)", ring, batch, rows_of(ring));
    }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        const std::int64_t rows = rows_of(ring);
        numbers_.draw(random, rows, batch, out.slot);
        for (std::int64_t k = 0; k < batch && blocks_; ++k) out.slot[k] = blocks_->select(out.slot[k]);
        if (!blocks_) ring.number_slots(batch, out.slot);
        fill_alike(out, batch, 1.0 / static_cast<double>(rows));
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double* scheduled, double* out) const override {
        if (!blocks_) return Uniform::distribution(ring, slots, n, batch, scheduled, out);
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = stands_for_row(ring, slots[k]) ? 1.0 / static_cast<double>(rows_of(ring)) : 0.0;
    }
    std::optional<SamplingTotals> totals(const Ring&) const override { return std::nullopt; }
    void stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) override {
        if (ring.in_blocks()) note(ring, {slots, slots + n});
    }
    void removed(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        if (blocks_) blocks_->removed(ring, slots, n, [](std::int64_t) { return 0.0; });
    }
    void restored(const Ring& ring, const std::vector<End>*) override {
        if (ring.in_blocks()) note(ring, ring.slots());
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool in_blocks) {
        return DistinctNumbers::nbytes(capacity) + (in_blocks ? BlockIndex::nbytes(capacity) : 0);
    }

  private:
    std::int64_t rows_of(const Ring& ring) const { return blocks_ ? blocks_->count() : ring.size(); }

    void note(const Ring& ring, const std::vector<std::int64_t>& slots) {
        if (!blocks_) blocks_ = std::make_unique<BlockIndex>(ring.capacity());
        blocks_->stored(ring, slots, [](std::int64_t) { return 0.0; });
    }

    DistinctNumbers numbers_;
    std::unique_ptr<BlockIndex> blocks_;  // where sequences are drawn
};

// Uniform draws and the newest step: B + 1 rows, or B when the newest takes the last draw's place. The draws
// are of all N steps or, distinct, different ones of the other N − 1.
class Combined : public Sampler {
  public:
    explicit Combined(const SamplerConfig& config)
        : replace_(config.option("replace") != 0.0), distinct_(config.option("distinct") != 0.0) {}
    std::int64_t rows(std::int64_t batch) const override { return replace_ ? batch : batch + 1; }
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if (distinct_) need("Combined(distinct=True)", ring, rows(batch), ring.size());
    }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        const std::int64_t n = rows(batch);
        if (distinct_) {
            numbers_.draw(random, ring.size() - 1, n - 1, out.slot);
            for (std::int64_t k = 0; k < n - 1; ++k) out.slot[k] = ring.slot_of_age(out.slot[k] + 1);
        } else {
            draw_uniform(ring, random, n - 1, out.slot);
        }
        out.slot[n - 1] = ring.slot_of_age(0);
        std::fill(out.weight, out.weight + n, 1.0f);
        distribution(ring, out.slot, n, batch, scheduled, out.probability);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
        const auto all = static_cast<double>(rows(batch)), stored = static_cast<double>(ring.size());
        const double drawn = all == 1.0 ? 0.0 : (all - 1.0) / (distinct_ ? stored - 1.0 : stored);
        for (std::int64_t k = 0; k < n; ++k) {
            const bool newest = slots[k] == ring.slot_of_age(0);
            out[k] = ((newest && distinct_ ? 0.0 : drawn) + (newest ? 1.0 : 0.0)) / all;
        }
    }

    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity, bool) {
        return config.option("distinct") != 0.0 ? DistinctNumbers::nbytes(capacity) : 0;
    }

  private:
    bool replace_, distinct_;
    DistinctNumbers numbers_;
};

}  // namespace

SamplerFamily uniform_samplers() {
    return {{"uniform", make<Uniform>, no_nbytes},
            {"stratified", make<Stratified>, no_nbytes},
            {"distinct", make<Distinct>, Distinct::nbytes},
            {"combined", make<Combined>, Combined::nbytes}};
}

}  // namespace replaylab
