// Batches made of the rows of several samplers over the same ring.
#include <algorithm>
#include <numeric>
#include <vector>

#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

// Part j gives its share of the rows; or the first, a queue, as many as wait there, and the second the
// others. The sampling probability of one row is Σ_j (rows of j / rows)·P_j(i). Rows carry that joint
// probability, and weight 1.
class Mixture : public Sampler {
  public:
    Mixture(const SamplerConfig& config, std::int64_t capacity) : fresh_(config.kind == "fresh_first") {
        for (std::size_t j = 0; j < config.parts.size(); ++j) {
            parts_.push_back(make_sampler(config.parts[j], capacity));
            if (!fresh_) shares_.push_back(config.option("share" + std::to_string(j)));
        }
    }

    std::int64_t rows(std::int64_t batch) const override {
        if (fresh_) return batch;
        const std::vector<std::int64_t> asked = shared(batch);
        std::int64_t total = 0;
        for (std::size_t j = 0; j < parts_.size(); ++j)
            total += asked[j] == 0 ? 0 : parts_[j]->rows(asked[j]);
        return total;
    }

    void check(const Ring& ring, std::int64_t batch) const override {
        Sampler::check(ring, batch);
        const std::vector<std::int64_t> asked = split(ring, batch);
        for (std::size_t j = 0; j < parts_.size(); ++j)
            if (asked[j] > 0) parts_[j]->check(ring, asked[j]);
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
              const Draw& out) override {
        asked_ = split(ring, batch);
        std::int64_t row = 0;
        for (std::size_t j = 0; j < parts_.size(); ++j) {
            if (asked_[j] == 0) continue;
            parts_[j]->draw(ring, random, asked_[j], scheduled + j,
                            {out.slot + row, out.probability + row, out.weight + row});
            row += parts_[j]->rows(asked_[j]);
        }
        std::fill(out.weight, out.weight + row, 1.0f);
        distribution(ring, out.slot, row, batch, scheduled, out.probability);
    }

    void finish(const Ring& ring, const std::int64_t* slots, std::int64_t) override {
        for (std::size_t j = 0; j < parts_.size(); ++j) {
            if (asked_[j] == 0) continue;
            const std::int64_t rows = parts_[j]->rows(asked_[j]);
            parts_[j]->finish(ring, slots, rows);
            slots += rows;
        }
    }

    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double* scheduled, double* out) const override {
        const std::vector<std::int64_t> asked = split(ring, batch);
        const auto all = static_cast<double>(rows(batch));
        std::vector<double> part(static_cast<std::size_t>(n));
        std::fill(out, out + n, 0.0);
        for (std::size_t j = 0; j < parts_.size(); ++j) {
            if (asked[j] == 0) continue;
            parts_[j]->distribution(ring, slots, n, asked[j], scheduled + j, part.data());
            const double share = static_cast<double>(parts_[j]->rows(asked[j])) / all;
            for (std::int64_t k = 0; k < n; ++k) out[k] += share * part[static_cast<std::size_t>(k)];
        }
    }

    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        for (const auto& part : parts_) part->stored(ring, random, slots, n);
    }

    void removed(const Ring& ring, const std::int64_t* slots, std::int64_t n) override {
        for (const auto& part : parts_) part->removed(ring, slots, n);
    }

    void ended(const Ring& ring, std::int64_t slot, bool terminated) override {
        for (const auto& part : parts_) part->ended(ring, slot, terminated);
    }

    void update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                bool td_errors) override {
        for (const auto& part : parts_) part->update(ring, slots, values, n, td_errors);
    }
    void restored(const Ring& ring, const std::vector<End>* ends) override {
        for (const auto& part : parts_) part->restored(ring, ends);
    }

    void visit(StateVisitor& state) override {
        const std::string outer = state.prefix();
        for (std::size_t j = 0; j < parts_.size(); ++j) {
            state.within(outer + part_prefix(j));
            parts_[j]->visit(state);
        }
        state.within(outer);
    }

    bool fits(const Ring& ring) const override {
        return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->fits(ring); });
    }

    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks) {
        std::int64_t bytes = 0;
        for (const SamplerConfig& part : config.parts) bytes += sampler_nbytes(part, capacity, in_blocks);
        return bytes;
    }

  private:
    // Rows asked of each part.
    std::vector<std::int64_t> split(const Ring& ring, std::int64_t batch) const {
        if (!fresh_) return shared(batch);
        const std::int64_t fresh = std::min(batch, parts_[0]->waiting(ring));
        return {fresh, batch - fresh};
    }

    // Its share of the batch, the fractions' rows given to the first parts.
    std::vector<std::int64_t> shared(std::int64_t batch) const {
        std::vector<std::int64_t> asked;
        double wanted = 0.0;
        std::int64_t given = 0;
        for (const double share : shares_) {
            wanted += share * static_cast<double>(batch);
            const auto upto = static_cast<std::int64_t>(wanted + 0.5);
            asked.push_back(upto - given);
            given = upto;
        }
        return asked;
    }

    bool fresh_;  // the first part is a queue, which goes first
    std::vector<std::unique_ptr<Sampler>> parts_;
    std::vector<double> shares_;       // sum to 1
    std::vector<std::int64_t> asked_;  // of each part, in the last draw
};

}  // namespace

SamplerFamily mixtures() {
    return {{"mixture", make<Mixture>, Mixture::nbytes}, {"fresh_first", make<Mixture>, Mixture::nbytes}};
}

}  // namespace replaylab
