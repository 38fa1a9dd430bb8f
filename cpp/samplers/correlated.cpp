// Samplers that change one property of a uniform batch and leave the rest: dials for finding causes.
#include <algorithm>
#include <limits>
#include <vector>

#include "samplers/sampler_table.hpp"
#include "storage/episodes.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace {

// B/L uniform starts, L consecutive steps each (the ring taken as a circle): every step's chance stays 1/N.
class Blocks : public Sampler {
  public:
    explicit Blocks(const SamplerConfig& config) : length_(config.whole("length")) {}

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
    void distribution(const Ring& ring, const std::int64_t*, std::int64_t n, std::int64_t, const double*,
                      double* out) const override {
        std::fill(out, out + n, 1.0 / static_cast<double>(ring.size()));
    }

  private:
    std::int64_t length_;
};

// With the scheduled probability s one of the last steps of an episode that has ended, evenly, otherwise any
// step. While none is stored, any step. Removed steps count as steps of their episode, but cannot be drawn.
// Their slots are a list, in which the last takes the place of one that goes.
class EpisodeEnds : public Sampler {
  public:
    EpisodeEnds(const SamplerConfig& config, std::int64_t capacity)
        : steps_(config.whole("steps")),
          truncated_(config.option("truncated") != 0.0),
          place_(static_cast<std::size_t>(capacity), kNone) {}

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        draw_uniform(ring, random, batch, out.slot);
        for (std::int64_t k = 0; k < batch && !slots_.empty(); ++k)
            if (random.uniform() < *scheduled) out.slot[k] = slots_[random.below(slots_.size())];
        std::fill(out.weight, out.weight + batch, 1.0f);
        distribution(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t,
                      const double* scheduled, double* out) const override {
        const double share = slots_.empty() ? 0.0 : *scheduled;
        const double any = (1.0 - share) / static_cast<double>(ring.size());
        const double last = slots_.empty() ? 0.0 : share / static_cast<double>(slots_.size());
        for (std::int64_t k = 0; k < n; ++k) out[k] = any + (place(slots[k]) == kNone ? 0.0 : last);
    }
    void stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) override {
        removed(ring, slots, n);
    }
    void removed(const Ring&, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) {
            const std::uint32_t gap = place(slots[k]);
            if (gap == kNone) continue;
            slots_[gap] = slots_.back();
            place(slots_[gap]) = gap;
            slots_.pop_back();
            place(slots[k]) = kNone;
        }
    }
    void ended(const Ring& ring, std::int64_t slot, bool terminated) override {
        if (!terminated && !truncated_) return;
        const Episodes& episodes = *ring.episodes();
        const Episodes::Span span = episodes.whole(slot);
        for (std::int64_t step = span.step; step >= span.low && span.step - step < steps_; --step) {
            const std::int64_t last = episodes.slot(span, step);
            if (!ring.shows(last)) continue;
            place(last) = static_cast<std::uint32_t>(slots_.size());
            slots_.push_back(static_cast<std::uint32_t>(last));
        }
    }

    void visit(StateVisitor& state) override {
        state.visit("last_steps", slots_);
        saved_options_ = options();
        if (state.has("options")) state.visit("options", saved_options_);  // the first snapshots lack them
    }
    bool fits(const Ring& ring) const override {
        std::vector<bool> named(place_.size(), false);
        for (const std::uint32_t slot : slots_) {
            if (slot >= ring.used() || !ring.shows(slot) || named[slot]) return false;
            named[slot] = true;
        }
        return true;
    }
    // The steps may have been found with other options. If these find the same ones, their order stays, so
    // that draws continue exactly.
    void restored(const Ring& ring, const std::vector<End>* ends) override {
        if (ends == nullptr && saved_options_ != options())
            fail("SnapshotError",
                 "it does not say which episodes terminated, so `steps` and `truncated` of EpisodeEnds must "
                 "be those "
                 "it was saved with");
        if (ends != nullptr) {
            const std::vector<std::uint32_t> saved = std::move(slots_);
            slots_.clear();
            std::fill(place_.begin(), place_.end(), kNone);
            for (const End& end : *ends) ended(ring, ring.slot(end.id), end.terminated);
            if (sorted(saved) == sorted(slots_)) slots_ = saved;
        }
        std::fill(place_.begin(), place_.end(), kNone);
        for (std::size_t k = 0; k < slots_.size(); ++k) place(slots_[k]) = static_cast<std::uint32_t>(k);
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool) { return 8 * capacity; }

  private:
    static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t& place(std::int64_t slot) { return place_[static_cast<std::size_t>(slot)]; }
    std::uint32_t place(std::int64_t slot) const { return place_[static_cast<std::size_t>(slot)]; }

    // Which steps the list holds depends on these.
    std::vector<std::int64_t> options() const { return {steps_, truncated_ ? 1 : 0}; }

    static std::vector<std::uint32_t> sorted(std::vector<std::uint32_t> slots) {
        std::sort(slots.begin(), slots.end());
        return slots;
    }

    std::int64_t steps_;
    bool truncated_;
    std::vector<std::int64_t> saved_options_;
    std::vector<std::uint32_t> slots_;  // of the last steps
    std::vector<std::uint32_t> place_;  // by slot: its place in that list, or none
};

}  // namespace

SamplerFamily correlated_samplers() {
    return {{"blocks", make<Blocks>, no_nbytes},
            {"episode_ends", make<EpisodeEnds>, EpisodeEnds::nbytes, /*feedback=*/false, /*priorities=*/"",
             /*episodes=*/true, /*slots_in_32_bits=*/true}};
}

}  // namespace replaylab
