// Reverse sweeps: the stored order backwards.
#include <algorithm>
#include <vector>

#include "indexes/sequence_blocks.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

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
    explicit ReverseSweep(const SamplerConfig& config)
        : stride_(config.whole("stride")), sweep_{-1, stride_ - 1} {}

    void draw(const Ring& ring, Random&, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        planned_ = sweep_;
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = advance(ring, planned_);
        std::fill(out.weight, out.weight + batch, 1.0f);
        distribution(ring, out.slot, batch, batch, scheduled, out.probability);
    }
    void finish(const Ring&, const std::int64_t*, std::int64_t) override { sweep_ = planned_; }
    void visit(StateVisitor& state) override {
        state.visit("next", sweep_.next);
        if (state.has("start")) state.visit("start", sweep_.start);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
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

}  // namespace

SamplerFamily reverse_sweeps() { return {{"reverse", make<ReverseSweep>, no_nbytes}}; }

}  // namespace replaylab
