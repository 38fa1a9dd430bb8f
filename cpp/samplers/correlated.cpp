// Samplers that change one property of a uniform batch and leave the rest: dials for finding causes.
#include <algorithm>
#include <vector>

#include "samplers/sampler.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace {

// B/L uniform starts, L consecutive steps each (the ring taken as a circle): every step's chance stays 1/N.
class Blocks : public Sampler {
  public:
    explicit Blocks(std::int64_t length) : length_(length) {}

    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if (batch % length_ != 0)
            fail("ConfigError",
                 "`batch_size` must be a multiple of Blocks' length, but got (batch_size=", batch,
                 ", length=", length_, ")");
    }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        for (std::int64_t k = 0; k < batch; k += length_) {
            // Ages fall within a block, so that it reads forwards in time.
            auto age = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(ring.size())));
            for (std::int64_t j = 0; j < length_; ++j) {
                out.slot[k + j] = ring.slot_of_age(age);
                age = age == 0 ? ring.size() - 1 : age - 1;
            }
        }
        fill_alike(out, batch, 1.0 / static_cast<double>(ring.size()));
    }
    void law(const Ring& ring, const std::int64_t*, std::int64_t n, std::int64_t, const double*,
             double* out) const override {
        std::fill(out, out + n, 1.0 / static_cast<double>(ring.size()));
    }

  private:
    std::int64_t length_;
};

// ⌊φB⌋ rows of the last batch, those still stored, once more; the rest uniform.
class Sticky : public Sampler {
  public:
    explicit Sticky(double fraction) : fraction_(fraction) {}

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        std::vector<std::int64_t> alive = still_stored(ring);
        const std::int64_t again = repeated(alive, batch);
        for (std::int64_t k = 0; k < again; ++k) {
            const auto pick =
                static_cast<std::size_t>(k) + random.below(alive.size() - static_cast<std::size_t>(k));
            std::swap(alive[static_cast<std::size_t>(k)], alive[pick]);
            out.slot[k] = ring.slot(alive[static_cast<std::size_t>(k)]);
        }
        draw_uniform(ring, random, batch - again, out.slot + again);
        std::fill(out.weight, out.weight + batch, 1.0f);
        law(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void finish(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        last_.clear();
        for (std::int64_t k = 0; k < n; ++k) last_.push_back(ring.id(slots[k]));
    }
    void visit(StateVisitor& state) override { state.visit("last", last_); }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        std::vector<std::int64_t> alive = still_stored(ring);
        const std::int64_t again = repeated(alive, batch);
        std::sort(alive.begin(), alive.end());
        const auto all = static_cast<double>(batch);
        const double uniform = static_cast<double>(batch - again) / static_cast<double>(ring.size());
        for (std::int64_t k = 0; k < n; ++k) {
            const auto found = std::equal_range(alive.begin(), alive.end(), ring.id(slots[k]));
            const auto copies = static_cast<double>(found.second - found.first);
            const double repeat =
                again == 0 ? 0.0 : static_cast<double>(again) * copies / static_cast<double>(alive.size());
            out[k] = (repeat + uniform) / all;
        }
    }

  private:
    std::vector<std::int64_t> still_stored(const Ring& ring) const {
        std::vector<std::int64_t> alive;
        for (const std::int64_t id : last_)
            if (ring.holds(id)) alive.push_back(id);
        return alive;
    }
    std::int64_t repeated(const std::vector<std::int64_t>& alive, std::int64_t batch) const {
        return std::min(static_cast<std::int64_t>(alive.size()),
                        static_cast<std::int64_t>(fraction_ * static_cast<double>(batch)));
    }

    double fraction_;
    std::vector<std::int64_t> last_;  // ids of the last batch
};

}  // namespace

std::unique_ptr<Sampler> make_correlated_sampler(const SamplerConfig& config) {
    if (config.kind == "blocks")
        return std::make_unique<Blocks>(static_cast<std::int64_t>(config.option("length")));
    if (config.kind == "sticky") return std::make_unique<Sticky>(config.option("fraction"));
    return nullptr;
}

}  // namespace replaylab
