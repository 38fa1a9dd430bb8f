// Prioritized draws of which no two fall into one episode.
#include <unordered_set>
#include <vector>

#include "samplers/prioritized.hpp"
#include "storage/episodes.hpp"

namespace replaylab {

namespace {

// A step whose episode has given one already is drawn again. Where that fails kTries times in a row, the
// leaves of the episodes that have given are set to 0 until the batch is drawn; where nothing is left, a new
// round begins.
class Dispersed : public Prioritized {
  public:
    using Prioritized::Prioritized;

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override {
        const Episodes& episodes = *ring.episodes();
        const double total = tree_.total();
        for (std::int64_t k = 0; k < batch; ++k) {
            if (static_cast<std::int64_t>(given_.size()) >= episodes.count()) new_round();
            out.slot[k] = draw_one(episodes, random);
            given_.insert(episodes.number(out.slot[k]));
            shown_.push_back(out.slot[k]);
        }
        new_round();
        for (std::int64_t k = 0; k < batch; ++k) out.probability[k] = tree_.leaf(out.slot[k]) / total;
        fill_weights(ring, batch, *beta, out);
    }

  private:
    static constexpr int kTries = 16;

    std::int64_t draw_one(const Episodes& episodes, Random& random) {
        for (int tried = 0;; ++tried) {
            if (tried == kTries) hide(episodes);
            if (!(tree_.total() > 0.0)) new_round();
            double target = random.uniform() * tree_.total();
            std::int64_t slot;
            tree_.find(&target, 1, &slot);
            if (given_.count(episodes.number(slot)) == 0) return slot;
        }
    }

    // Sets the leaves of the episodes that have given a step to 0.
    void hide(const Episodes& episodes) {
        slots_.clear();
        for (const std::int64_t slot : shown_) {
            const Episodes::Span span = episodes.span(slot);
            for (std::int64_t step = span.low; step <= span.high; ++step)
                slots_.push_back(episodes.slot(span, step));
        }
        for (const std::int64_t slot : slots_) {
            hidden_.push_back(slot);
            leaves_.push_back(tree_.leaf(slot));
        }
        zeros_.assign(slots_.size(), 0.0f);
        tree_.set(slots_.data(), zeros_.data(), static_cast<std::int64_t>(slots_.size()));
        shown_.clear();
    }

    // Every episode may give a step again, and has its leaves back.
    void new_round() {
        if (!hidden_.empty())
            tree_.set(hidden_.data(), leaves_.data(), static_cast<std::int64_t>(hidden_.size()));
        hidden_.clear();
        leaves_.clear();
        shown_.clear();
        given_.clear();
    }

    std::unordered_set<std::uint32_t> given_;  // episodes that gave a step in this round
    std::vector<std::int64_t> shown_;          // the steps they gave, of those not hidden
    std::vector<std::int64_t> hidden_;         // slots whose leaves are 0 now
    std::vector<float> leaves_;                // and what these were
    std::vector<std::int64_t> slots_;          // scratch
    std::vector<float> zeros_;
};

}  // namespace

std::unique_ptr<Sampler> make_dispersed_sampler(const SamplerConfig& config, std::int64_t capacity) {
    return config.kind == "dispersed" ? std::make_unique<Dispersed>(config, capacity) : nullptr;
}

}  // namespace replaylab
