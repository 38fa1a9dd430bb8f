// Samplers that need no priorities: uniform, uniform without repetition, newest, window, combined.
#include <algorithm>
#include <vector>

#include "sampler.hpp"

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
};

// P = 1/N, no step twice in a batch (Floyd's algorithm: B draws whatever N is).
class Distinct : public Uniform {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("Uniform(replace=False)", ring, batch);
    }
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        taken_.resize(static_cast<std::size_t>(ring.capacity()));
        for (std::int64_t k = 0, top = ring.size() - batch; k < batch; ++k, ++top) {
            const auto pick = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(top) + 1));
            out.slot[k] = taken_[static_cast<std::size_t>(pick)] ? top : pick;
            taken_[static_cast<std::size_t>(out.slot[k])] = true;
        }
        for (std::int64_t k = 0; k < batch; ++k) taken_[static_cast<std::size_t>(out.slot[k])] = false;
        fill_alike(out, batch, 1.0 / static_cast<double>(ring.size()));
    }

  private:
    std::vector<bool> taken_;
};

// The newest step alone.
class Newest : public Sampler {
  public:
    std::int64_t rows(std::int64_t) const override { return 1; }
    void draw(const Ring& ring, Random&, std::int64_t, const double*, const Draw& out) override {
        out.slot[0] = ring.slot_of_age(0);
        fill_alike(out, 1, 1.0);
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t, const double*,
             double* out) const override {
        for (std::int64_t k = 0; k < n; ++k) out[k] = slots[k] == ring.slot_of_age(0) ? 1.0 : 0.0;
    }
};

// The newest B steps, newest first.
class Window : public Sampler {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("SlidingWindow", ring, batch);
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, const double*, const Draw& out) override {
        for (std::int64_t age = 0; age < batch; ++age) out.slot[age] = ring.slot_of_age(age);
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        const auto width = static_cast<double>(std::min(batch, ring.size()));
        for (std::int64_t k = 0; k < n; ++k) out[k] = ring.age(slots[k]) < batch ? 1.0 / width : 0.0;
    }
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

}  // namespace

std::unique_ptr<Sampler> make_plain_sampler(const SamplerConfig& config) {
    if (config.kind == "uniform") return std::make_unique<Uniform>();
    if (config.kind == "distinct") return std::make_unique<Distinct>();
    if (config.kind == "newest") return std::make_unique<Newest>();
    if (config.kind == "window") return std::make_unique<Window>();
    if (config.kind == "combined_plus") return std::make_unique<Combined>(false);
    if (config.kind == "combined_replace") return std::make_unique<Combined>(true);
    return nullptr;
}

}  // namespace replaylab
