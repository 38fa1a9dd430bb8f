// Shuffled epochs: every step stored when an epoch begins comes exactly once in it, in random order.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "indexes/sequence_blocks.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

template <typename Vector>
decltype(auto) at(Vector& vector, std::int64_t i) {
    return vector[static_cast<std::size_t>(i)];
}

// A Fisher-Yates shuffle that continues from draw to draw: O(1) a row, and an epoch starts at no cost,
// because any arrangement is as good a start as another. Steps overwritten since the epoch began are passed
// over; those stored since wait for the next. Where sequences are drawn, an epoch is made of their blocks,
// each of which stands and falls with the step that was its newest when the epoch began.
class ShuffledEpochs : public Sampler {
  public:
    ShuffledEpochs(const SamplerConfig&, std::int64_t capacity)
        : order_(static_cast<std::size_t>(capacity)), past_(order_.size(), -1) {
        std::iota(order_.begin(), order_.end(), 0);
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        take_back();
        planned_ = epoch_;
        for (std::int64_t k = 0; k < batch;) {
            if (planned_.place == planned_.members) planned_ = Epoch{planned_.number + 1, 0, ring.used()};
            const auto left = static_cast<std::uint64_t>(planned_.members - planned_.place);
            const std::int64_t pick = planned_.place + static_cast<std::int64_t>(random.below(left));
            std::swap(at(order_, planned_.place), at(order_, pick));
            swapped_.emplace_back(planned_.place, pick);
            const std::int64_t slot = at(order_, planned_.place++);
            const bool begun = planned_.number == epoch_.number;
            if (begun ? at(past_, slot) == epoch_.number : !stands_for_row(ring, slot)) continue;
            ++planned_.rows;
            out.slot[k++] = slot;
        }
        std::fill(out.weight, out.weight + batch, 1.0f);
        distribution(ring, out.slot, batch, batch, scheduled, out.probability);
    }

    void finish(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        const bool same = planned_.number == epoch_.number;
        left_ = (same ? left_ : count_rows(ring)) - planned_.rows;
        const bool all_stand = !ring.in_blocks() && ring.size() == ring.used();
        for (std::int64_t slot = 0; slot < planned_.members && !all_stand && !same; ++slot)
            if (!stands_for_row(ring, slot)) at(past_, slot) = planned_.number;
        for (std::int64_t k = n - planned_.rows; k < n; ++k) at(past_, slots[k]) = planned_.number;
        epoch_ = planned_;
        epoch_.rows = 0;
        swapped_.clear();
    }

    void stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) override {
        removed(ring, slots, n);
    }

    void removed(const Ring&, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) {
            if (!is_due(slots[k])) continue;
            at(past_, slots[k]) = epoch_.number;
            --left_;
        }
    }

    void visit(StateVisitor& state) override {
        take_back();
        state.visit("order", order_);
        state.visit("past", past_);
        state.visit("number", epoch_.number);
        state.visit("place", epoch_.place);
        state.visit("members", epoch_.members);
        state.visit("left", left_);
    }

    bool fits(const Ring& ring) const override {
        if (epoch_.number < 0 || epoch_.number > StateVisitor::kMost || epoch_.place < 0 ||
            epoch_.place > epoch_.members || epoch_.members > ring.used())
            return false;
        std::vector<bool> named(order_.size(), false);
        std::int64_t due = 0;
        for (std::int64_t i = 0; i < ring.capacity(); ++i) {
            const std::int64_t slot = at(order_, i);
            if (slot < 0 || slot >= (i < epoch_.members ? epoch_.members : ring.capacity()) ||
                at(named, slot))
                return false;
            at(named, slot) = true;
            if (at(past_, i) > epoch_.number) return false;
            due += is_due(i);
        }
        return left_ == due;
    }

    // What is left of the epoch, then whole epochs, then a part of one.
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double*, double* out) const override {
        const auto all = static_cast<double>(batch);
        double beyond = 0.0;
        if (batch > left_)
            beyond = static_cast<double>(batch - left_) / static_cast<double>(count_rows(ring));
        const double share =
            left_ == 0 ? 0.0 : static_cast<double>(std::min(batch, left_)) / static_cast<double>(left_);
        for (std::int64_t k = 0; k < n; ++k) {
            const double again = beyond > 0.0 && stands_for_row(ring, slots[k]) ? beyond : 0.0;
            out[k] = ((is_due(slots[k]) ? share : 0.0) + again) / all;
        }
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool) { return 16 * capacity; }

  private:
    struct Epoch {
        std::int64_t number = 0;
        std::int64_t place = 0;    // how far order_ has been walked
        std::int64_t members = 0;  // it walks slots 0 .. members − 1
        std::int64_t rows = 0;     // it gives to the batch being drawn
    };

    // The order as it was before a draw that nothing came of: one that others' steps overtook, or that
    // failed.
    void take_back() {
        for (; !swapped_.empty(); swapped_.pop_back())
            std::swap(at(order_, swapped_.back().first), at(order_, swapped_.back().second));
    }

    bool is_due(std::int64_t slot) const { return slot < epoch_.members && at(past_, slot) != epoch_.number; }

    std::vector<std::int64_t> order_;  // a permutation of the slots
    std::vector<std::int64_t>
        past_;  // by slot: the epoch in which its step came, was overwritten, or has no part
    std::vector<std::pair<std::int64_t, std::int64_t>> swapped_;  // places, since the last batch was finished
    Epoch epoch_, planned_;
    std::int64_t left_ = 0;  // steps of the epoch still due
};

}  // namespace

SamplerFamily shuffled_epochs() { return {{"epochs", make<ShuffledEpochs>, ShuffledEpochs::nbytes}}; }

}  // namespace replaylab
