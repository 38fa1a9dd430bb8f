// Samplers by age alone: the newest steps more often, or in the order they were stored.
#include <algorithm>
#include <array>
#include <vector>

#include "indexes/blocks.hpp"
#include "samplers/sampler.hpp"
#include "support/error.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

// Uniform over the newest c_k = max(N·η^(1000·k/K), c_min) steps, for update k = 1..K of a burst.
class Recency : public Sampler {
  public:
    Recency(std::int64_t least, std::int64_t burst) : least_(least), burst_(burst) {}

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
        state.must(update_ >= 1 && update_ <= burst_, "update");
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t, const double* eta,
             double* out) const override {
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
    explicit Geometric(double q) : keep_(1.0 - q) {
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
        law(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t, const double*,
             double* out) const override {
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

// Adds the share of a batch that each row has to the chances of the slots that stand for it.
void count_shares(std::vector<std::int64_t>& rows, const std::int64_t* slots, std::int64_t n, double* out) {
    std::sort(rows.begin(), rows.end());
    for (std::int64_t k = 0; k < n; ++k) {
        const auto found = std::equal_range(rows.begin(), rows.end(), slots[k]);
        out[k] = static_cast<double>(found.second - found.first) / static_cast<double>(rows.size());
    }
}

// Stored order backwards, every s-th step, from the newest to the oldest; the next sweep begins one step
// further back, so that s sweeps take all steps. Where sequences are drawn, the same of their blocks.
class ReverseSweep : public Sampler {
  public:
    explicit ReverseSweep(std::int64_t stride) : stride_(stride), sweep_{-1, stride - 1} {}

    void draw(const Ring& ring, Random&, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        planned_ = sweep_;
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = advance(ring, planned_);
        std::fill(out.weight, out.weight + batch, 1.0f);
        law(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void finish(const Ring&, const std::int64_t*, std::int64_t) override { sweep_ = planned_; }
    void visit(StateVisitor& state) override {
        state.visit("next", sweep_.next);
        if (state.has("start")) state.visit("start", sweep_.start);
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        Sweep sweep = sweep_;
        std::vector<std::int64_t> rows;
        for (std::int64_t row = 0; row < batch && ring.size() > 0; ++row)
            rows.push_back(advance(ring, sweep));
        count_shares(rows, slots, n, out);
    }

  private:
    struct Sweep {
        std::int64_t next;   // the id due next; one that is not stored ends the sweep
        std::int64_t start;  // how many steps after the newest the sweep began
    };

    std::int64_t advance(const Ring& ring, Sweep& sweep) const {
        std::int64_t id = at_or_before(ring, sweep.next);
        if (!ring.holds(id)) {
            sweep.start = (sweep.start + 1) % stride_;
            id = before(ring, at_or_before(ring, ring.next_id() - 1), sweep.start);
            if (!ring.holds(id)) {
                sweep.start = 0;
                id = at_or_before(ring, ring.next_id() - 1);
            }
        }
        sweep.next = before(ring, id, stride_);
        return ring.slot(id);
    }

    // The newest id up to this one that stands for a row.
    static std::int64_t at_or_before(const Ring& ring, std::int64_t id) {
        while (ring.in_blocks() && ring.holds(id) && !stands_for_row(ring, ring.slot(id))) --id;
        return id;
    }
    // The id so many rows before this one's.
    static std::int64_t before(const Ring& ring, std::int64_t id, std::int64_t rows) {
        if (!ring.in_blocks()) return id - rows;
        for (; rows > 0 && ring.holds(id); --rows) id = at_or_before(ring, id - 1);
        return id;
    }

    std::int64_t stride_;
    Sweep sweep_, planned_{};
};

// The oldest step that was not drawn yet, each once: a queue. What is overwritten before is lost.
class Queue : public Sampler {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        const std::int64_t waiting = ring.next_id() - first(ring);
        if (batch > waiting)
            fail("EmptyBufferError", "Queue gives every step once, but batch_size=", batch, " and only ",
                 waiting, " of ", ring.size(),
                 " stored steps were not drawn yet; ask for fewer, or add more ", "steps first");
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, const double*, const Draw& out) override {
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = ring.slot(first(ring) + k);
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void finish(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        next_ = ring.id(slots[n - 1]) + 1;
    }
    void visit(StateVisitor& state) override {
        state.visit("next", next_);
        state.must(next_ >= -StateVisitor::kMost && next_ <= StateVisitor::kMost, "next");
    }
    void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch, const double*,
             double* out) const override {
        const std::int64_t rows = std::min(batch, ring.next_id() - first(ring));
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t place = ring.id(slots[k]) - first(ring);
            out[k] = place >= 0 && place < rows ? 1.0 / static_cast<double>(rows) : 0.0;
        }
    }

  private:
    std::int64_t first(const Ring& ring) const { return std::max(next_, ring.next_id() - ring.size()); }

    std::int64_t next_ = 0;  // the id due next
};

}  // namespace

std::unique_ptr<Sampler> make_age_sampler(const SamplerConfig& config) {
    if (config.kind == "recency")
        return std::make_unique<Recency>(static_cast<std::int64_t>(config.option("least")),
                                         static_cast<std::int64_t>(config.option("burst")));
    if (config.kind == "geometric") return std::make_unique<Geometric>(config.option("q"));
    if (config.kind == "queue") return std::make_unique<Queue>();
    if (config.kind == "reverse")
        return std::make_unique<ReverseSweep>(static_cast<std::int64_t>(config.option("stride")));
    return nullptr;
}

}  // namespace replaylab
