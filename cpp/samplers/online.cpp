// Samplers of the stream as it comes: the newest step, the newest B, the oldest that was not drawn yet.
#include <algorithm>

#include "indexes/sequence_blocks.hpp"
#include "samplers/sampler_table.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace {

// The newest step alone.
class Newest : public Sampler {
  public:
    std::int64_t rows(std::int64_t) const override { return 1; }
    void draw(const Ring& ring, Random&, std::int64_t, const double*, const Draw& out) override {
        out.slot[0] = ring.slot_of_age(0);
        fill_alike(out, 1, 1.0);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t,
                      const double*, double* out) const override {
        for (std::int64_t k = 0; k < n; ++k) out[k] = slots[k] == ring.slot_of_age(0) ? 1.0 : 0.0;
    }
};

// The newest B steps, newest first; where sequences are drawn, the newest B blocks.
class Window : public Sampler {
  public:
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        need("SlidingWindow", ring, batch, width(ring, batch));
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, const double*, const Draw& out) override {
        std::int64_t row = 0;
        for (std::int64_t age = 0; row < batch; ++age) {
            const std::int64_t slot = ring.slot_of_age(age);
            if (stands_for_row(ring, slot)) out.slot[row++] = slot;
        }
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
        std::int64_t reach = 0;
        const auto rows = static_cast<double>(width(ring, batch, &reach));
        for (std::int64_t k = 0; k < n; ++k)
            out[k] = ring.age(slots[k]) < reach && stands_for_row(ring, slots[k]) ? 1.0 / rows : 0.0;
    }

  private:
    // How many of B rows there are; and how many steps they reach back.
    static std::int64_t width(const Ring& ring, std::int64_t batch, std::int64_t* reach = nullptr) {
        std::int64_t rows = std::min(batch, ring.size()), age = rows;
        if (ring.in_blocks())
            for (rows = 0, age = 0; rows < batch && age < ring.size(); ++age)
                rows += stands_for_row(ring, ring.slot_of_age(age));
        if (reach != nullptr) *reach = age;
        return rows;
    }
};

// The oldest step that was not drawn yet, each once: a queue. What is overwritten before is lost.
class Queue : public Sampler {
  public:
    std::int64_t waiting(const Ring& ring) const override { return ring.count_from_id(next_); }
    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        if (batch > waiting(ring))
            fail("EmptyBufferError", "Queue gives every step once, but batch_size=", batch, " and only ",
                 waiting(ring), " of ", ring.size(),
                 " stored steps were not drawn yet; ask for fewer, or add more ", "steps first");
    }
    void draw(const Ring& ring, Random&, std::int64_t batch, const double*, const Draw& out) override {
        const std::int64_t oldest = waiting(ring) - 1;  // its age
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = ring.slot_of_age(oldest - k);
        fill_alike(out, batch, 1.0 / static_cast<double>(batch));
    }
    void finish(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        next_ = ring.id(slots[n - 1]) + 1;
    }
    void visit(StateVisitor& state) override {
        state.visit("next", next_);
        state.must(next_ >= -StateVisitor::kMost && next_ <= StateVisitor::kMost, "next");
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
        const std::int64_t oldest = waiting(ring) - 1, rows = std::min(batch, oldest + 1);
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t place = oldest - ring.age(slots[k]);
            out[k] = place >= 0 && place < rows ? 1.0 / static_cast<double>(rows) : 0.0;
        }
    }

  private:
    std::int64_t next_ = 0;  // the id due next
};

}  // namespace

SamplerFamily online_samplers() {
    return {{"newest", make<Newest>, no_nbytes},
            {"window", make<Window>, no_nbytes},
            {"queue", make<Queue>, no_nbytes}};
}

}  // namespace replaylab
