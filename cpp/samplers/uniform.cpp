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
    void law(const Ring& ring, const std::int64_t*, std::int64_t n, std::int64_t, const double*,
             double* out) const override {
        std::fill(out, out + n, 1.0 / static_cast<double>(ring.size()));
    }
    std::optional<LawTotals> totals(const Ring& ring) const override {
        return LawTotals{static_cast<double>(ring.size()), 1.0, ring.size()};
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
        fill_alike(out, batch, 1.0 / static_cast<double>(ring.size()));
    }
};

// P = 1/N, no step twice in a batch, in random order (Floyd's algorithm, then a shuffle: 2B random numbers
// whatever N is). Where sequences are drawn, the same of the blocks.
class Distinct : public Uniform {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("Uniform(replace=False)", ring, batch, rows_of(ring));
    }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        const std::int64_t rows = rows_of(ring);
        taken_.resize(static_cast<std::size_t>(ring.capacity()));
        for (std::int64_t k = 0, top = rows - batch; k < batch; ++k, ++top) {
            const auto pick = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(top) + 1));
            out.slot[k] = taken_[static_cast<std::size_t>(pick)] ? top : pick;
            taken_[static_cast<std::size_t>(out.slot[k])] = true;
        }
        for (std::int64_t k = 0; k < batch; ++k) taken_[static_cast<std::size_t>(out.slot[k])] = false;
        for (std::int64_t k = batch; k > 1; --k)
            std::swap(out.slot[k - 1], out.slot[random.below(static_cast<std::uint64_t>(k))]);
        for (std::int64_t k = 0; k < batch && blocks_; ++k) out.slot[k] = blocks_->select(out.slot[k]);
        fill_alike(out, batch, 1.0 / static_cast<double>(rows));
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
             const double* scheduled, double* out) const override {
        if (!blocks_) return Uniform::law(ring, slots, n, batch, scheduled, out);
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = stands_for_row(ring, slots[k]) ? 1.0 / static_cast<double>(rows_of(ring)) : 0.0;
    }
    std::optional<LawTotals> totals(const Ring&) const override { return std::nullopt; }
    void stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) override {
        if (ring.in_blocks()) note(ring, {slots, slots + n});
    }
    void restored(const Ring& ring) override {
        std::vector<std::int64_t> all(static_cast<std::size_t>(ring.size()));
        std::iota(all.begin(), all.end(), 0);
        if (ring.in_blocks()) note(ring, all);
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool in_blocks) {
        return capacity / 8 + (in_blocks ? BlockIndex::nbytes(capacity) : 0);
    }

  private:
    std::int64_t rows_of(const Ring& ring) const { return blocks_ ? blocks_->count() : ring.size(); }

    void note(const Ring& ring, const std::vector<std::int64_t>& slots) {
        if (!blocks_) blocks_ = std::make_unique<BlockIndex>(ring.capacity());
        blocks_->stored(ring, slots, [](std::int64_t) { return 0.0; });
    }

    std::vector<bool> taken_;
    std::unique_ptr<BlockIndex> blocks_;  // where sequences are drawn
};

// Uniform draws and the newest step: B + 1 rows, or B when the newest takes the last draw's place.
class Combined : public Sampler {
  public:
    explicit Combined(bool replace) : replace_(replace) {}
    std::int64_t rows(std::int64_t batch) const override { return replace_ ? batch : batch + 1; }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        const std::int64_t n = rows(batch);
        draw_uniform(ring, random, n - 1, out.slot);
        out.slot[n - 1] = ring.slot_of_age(0);
        std::fill(out.weight, out.weight + n, 1.0f);
        law(ring, out.slot, n, batch, scheduled, out.probability);
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        const auto all = static_cast<double>(rows(batch));
        const double uniform = (all - 1.0) / static_cast<double>(ring.size());
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = (uniform + (slots[k] == ring.slot_of_age(0) ? 1.0 : 0.0)) / all;
    }

  private:
    bool replace_;
};

struct CombinedPlus : Combined {
    CombinedPlus() : Combined(false) {}
};

struct CombinedReplace : Combined {
    CombinedReplace() : Combined(true) {}
};

}  // namespace

SamplerFamily uniform_samplers() {
    return {{"uniform", make<Uniform>, no_nbytes},
            {"stratified", make<Stratified>, no_nbytes},
            {"distinct", make<Distinct>, Distinct::nbytes},
            {"combined_plus", make<CombinedPlus>, no_nbytes},
            {"combined_replace", make<CombinedReplace>, no_nbytes}};
}

}  // namespace replaylab
