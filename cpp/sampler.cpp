#include "sampler.hpp"

#include <algorithm>

#include "error.hpp"
#include "prioritized.hpp"

namespace replaylab {

namespace {

void fill_certain(const Draw& out, std::int64_t n, double probability) {
    std::fill(out.probability, out.probability + n, probability);
    std::fill(out.weight, out.weight + n, 1.0f);
}

void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots) {
    const auto size = static_cast<std::uint64_t>(ring.size());
    for (std::int64_t k = 0; k < n; ++k) slots[k] = static_cast<std::int64_t>(random.below(size));
}

// P = 1/N, with replacement.
class Uniform : public Sampler {
  public:
    void draw(const Ring& ring, Random& random, std::int64_t batch, double, const Draw& out) override {
        draw_uniform(ring, random, batch, out.slot);
        fill_certain(out, batch, 1.0 / static_cast<double>(ring.size()));
    }
    double probability(const Ring& ring, std::int64_t, std::int64_t) const override {
        return 1.0 / static_cast<double>(ring.size());
    }
};

// The newest step alone.
class Newest : public Sampler {
  public:
    std::int64_t rows(std::int64_t) const override { return 1; }
    void draw(const Ring& ring, Random&, std::int64_t, double, const Draw& out) override {
        out.slot[0] = ring.slot_of_age(0);
        fill_certain(out, 1, 1.0);
    }
    double probability(const Ring& ring, std::int64_t slot, std::int64_t) const override {
        return slot == ring.slot_of_age(0) ? 1.0 : 0.0;
    }
};

// The newest B steps, newest first.
class Window : public Sampler {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if (batch > ring.size())
            fail("EmptyBufferError",
                 "SlidingWindow gives the newest `batch_size` steps, but batch_size=", batch, " and only ",
                 ring.size(), " steps are stored (capacity=", ring.capacity(),
                 "); ask for fewer, or add more steps first");
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, double, const Draw& out) override {
        for (std::int64_t age = 0; age < batch; ++age) out.slot[age] = ring.slot_of_age(age);
        fill_certain(out, batch, 1.0 / static_cast<double>(batch));
    }
    double probability(const Ring& ring, std::int64_t slot, std::int64_t batch) const override {
        const std::int64_t age = ring.next_id() - 1 - ring.id(slot);
        return age < batch ? 1.0 / static_cast<double>(std::min(batch, ring.size())) : 0.0;
    }
};

// Uniform draws and the newest step: B + 1 rows, or B when the newest takes the last draw's place.
class Combined : public Sampler {
  public:
    explicit Combined(bool replace) : replace_(replace) {}
    std::int64_t rows(std::int64_t batch) const override { return replace_ ? batch : batch + 1; }
    void draw(const Ring& ring, Random& random, std::int64_t batch, double, const Draw& out) override {
        const std::int64_t n = rows(batch);
        draw_uniform(ring, random, n - 1, out.slot);
        out.slot[n - 1] = ring.slot_of_age(0);
        std::fill(out.weight, out.weight + n, 1.0f);
        for (std::int64_t k = 0; k < n; ++k) out.probability[k] = probability(ring, out.slot[k], batch);
    }
    double probability(const Ring& ring, std::int64_t slot, std::int64_t batch) const override {
        const auto n = static_cast<double>(rows(batch));
        const double uniform = (n - 1.0) / static_cast<double>(ring.size());
        return (uniform + (slot == ring.slot_of_age(0) ? 1.0 : 0.0)) / n;
    }

  private:
    bool replace_;
};

}  // namespace

void Sampler::check(const Ring& ring, std::int64_t) const {
    if (ring.size() == 0)
        fail("EmptyBufferError", "the buffer is empty; add at least one step before sampling");
}

void Sampler::stored(const std::int64_t*, std::int64_t) {}

void Sampler::update(const std::int64_t*, const double*, std::int64_t, bool) {}

std::unique_ptr<Sampler> Sampler::make(const SamplerConfig& config, std::int64_t capacity) {
    if (config.kind == "newest") return std::make_unique<Newest>();
    if (config.kind == "window") return std::make_unique<Window>();
    if (config.kind == "uniform") return std::make_unique<Uniform>();
    if (config.kind == "combined_plus") return std::make_unique<Combined>(false);
    if (config.kind == "combined_replace") return std::make_unique<Combined>(true);
    if (config.kind == "prioritized") return std::make_unique<Prioritized>(config, capacity);
    fail("ConfigError", "the core has no sampler of kind `", config.kind, "`");
}

std::int64_t Sampler::nbytes(const SamplerConfig& config, std::int64_t capacity) {
    return config.kind == "prioritized" ? SumTree::nbytes(capacity) : 0;
}

}  // namespace replaylab
