// Emphasis on recent experience: the younger a step, the likelier.
#include <algorithm>
#include <array>

#include "samplers/sampler_table.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

// Uniform over the newest c_k = max(N·η^(1000·k/K), c_min) steps, for update k = 1..K of a burst.
class Recency : public Sampler {
  public:
    explicit Recency(const SamplerConfig& config)
        : least_(config.whole("least")), burst_(config.whole("burst")) {}

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* eta,
              const Draw& out) override {
        const std::int64_t width = window(ring, *eta);
        for (std::int64_t k = 0; k < batch; ++k)
            out.slot[k] =
                ring.slot_of_age(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(width))));
        fill_alike(out, batch, 1.0 / static_cast<double>(width));
    }
    void finish(const Ring&, const std::int64_t*, std::int64_t) override { update_ = update_ % burst_ + 1; }
    void visit(StateVisitor& state) override {
        state.visit("update", update_);
        state.must(update_ >= 1 && update_ <= StateVisitor::kMost, "update");
        update_ = (update_ - 1) % burst_ + 1;  // it may have been one of a longer burst
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t,
                      const double* eta, double* out) const override {
        const std::int64_t width = window(ring, *eta);
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = ring.age(slots[k]) < width ? 1.0 / static_cast<double>(width) : 0.0;
    }

  private:
    std::int64_t window(const Ring& ring, double eta) const {
        const double exponent = 1000.0 * static_cast<double>(update_) / static_cast<double>(burst_);
        const double wanted = static_cast<double>(ring.size()) * power(eta, exponent);
        return std::min(ring.size(), std::max(static_cast<std::int64_t>(wanted), least_));
    }

    std::int64_t least_, burst_;
    std::int64_t update_ = 1;  // k of the next call
};

// P(age) = q(1 − q)^age / (1 − (1 − q)^N). The binary digits of a geometric number are independent: digit j
// is one with odds (1 − q)^(2^j). So an age below the next power of two is drawn digit by digit, and drawn
// again if it is N or more: exact, and without a logarithm.
class Geometric : public Sampler {
  public:
    explicit Geometric(const SamplerConfig& config) : keep_(1.0 - config.option("q")) {
        double odds = keep_;
        for (double& digit : digits_) {
            digit = odds / (1.0 + odds);
            odds *= odds;
        }
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        std::size_t digits = 0;
        while ((std::int64_t{1} << digits) < ring.size()) ++digits;
        for (std::int64_t k = 0; k < batch; ++k) {
            std::int64_t age;
            do {
                age = 0;
                for (std::size_t j = 0; j < digits; ++j)
                    age |= static_cast<std::int64_t>(random.uniform() < digits_[j]) << j;
            } while (age >= ring.size());
            out.slot[k] = ring.slot_of_age(age);
        }
        std::fill(out.weight, out.weight + batch, 1.0f);
        distribution(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t,
                      const double*, double* out) const override {
        const double scale = (1.0 - keep_) / (1.0 - kept(ring.size()));
        for (std::int64_t k = 0; k < n; ++k) out[k] = scale * kept(ring.age(slots[k]));
    }

  private:
    // (1 − q)^age by repeated squaring.
    double kept(std::int64_t age) const {
        double product = 1.0;
        for (double factor = keep_; age > 0; age >>= 1, factor *= factor)
            if (age & 1) product *= factor;
        return product;
    }

    double keep_;
    std::array<double, 62> digits_;
};

}  // namespace

SamplerFamily recency_samplers() {
    return {{"recency", make<Recency>, no_nbytes}, {"geometric", make<Geometric>, no_nbytes}};
}

}  // namespace replaylab
