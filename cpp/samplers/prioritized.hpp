// Proportional prioritization (Schaul et al. 2016): P(i) = p_i^α / Σ p^α over a sum tree; and its variants.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "indexes/block_index.hpp"
#include "indexes/sum_tree.hpp"
#include "samplers/sampler.hpp"

namespace replaylab {

// What a TD error becomes.
enum class Feedback : int {
    absolute = 0,  // |δ| + ε
    clipped = 1,   // max(|δ|, 1)
    positive = 2,  // max(δ, 0) + ε
};

enum class Normalize : int { buffer = 0, batch = 1, none = 2 };

class Prioritized : public Sampler {
  public:
    Prioritized(const SamplerConfig& config, std::int64_t capacity, unsigned keeps = SumTree::kAll);

    void check(const Ring& ring, std::int64_t batch) const override;
    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override;
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double* beta, double* out) const override;
    std::optional<SamplingTotals> totals(const Ring& ring) const override;
    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override;
    void removed(const Ring& ring, const std::int64_t* slots, std::int64_t n) override;
    void update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                bool td_errors) override;
    void visit(StateVisitor& state) override;
    bool fits(const Ring& ring) const override;
    void restored(const Ring& ring, const std::vector<End>* ends) override;

    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks);

  protected:
    // Slots in the tree are the steps', unless priorities belong to others: which step a leaf gives, and
    // back.
    virtual std::int64_t shown(std::int64_t leaf) const { return leaf; }
    virtual std::int64_t leaf_of(std::int64_t slot) const { return slot; }

    // Gives n steps the p^α in values_.
    virtual void put(const Ring&, const std::int64_t* slots, std::int64_t n) {
        tree_.set(slots, values_.data(), n);
    }

    // Weights of the rows whose masses are in scratch_: 1 for a row of mass `reference`.
    void weigh(double reference, std::int64_t n, double beta, const Draw& out);

    SumTree tree_;              // leaves are what steps are drawn in proportion to: p^α
    SumTree* powers_ = &tree_;  // leaves are p^α
    std::vector<float> values_;
    std::vector<double> scratch_;
    Normalize normalize_;
    bool stratified_;                  // one draw from each of B/L equal segments, not B/L independent ones
    std::vector<std::int64_t> moved_;  // steps that got another leaf since blocks were last noted

    // Sequence blocks of these steps, new ones or not, and of moved_ are worth something else.
    void note(const Ring& ring, const std::int64_t* slots, std::int64_t n, bool stored);

  private:
    void fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out);
    void draw_distinct(const Ring& ring, Random& random, std::int64_t batch, double beta, const Draw& out);
    void rescale(std::vector<float>& leaves, double from) const;
    void spread(const Ring& ring, Random& random, std::int64_t blocks, std::int64_t* leaves);
    void fill_block(const Ring& ring, double u, std::int64_t oldest, std::int64_t newest,
                    std::int64_t* leaves);

    double exponent_;  // α, or −α
    double epsilon_;
    Feedback feedback_;
    std::int64_t block_length_;  // L: rows that come from one cell of neighbouring steps
    bool ever_;                  // new steps get the largest priority there ever was, not the largest stored
    float largest_ever_ = 1.0f;  // as p^α
    bool replace_;               // a step may come again in a batch
    bool some_zero_ = false;     // whether a step may have priority 0; kept for draws without repetition
    std::unique_ptr<BlockIndex> blocks_;  // where sequences are drawn: their p^α together
    std::vector<std::int64_t> drawn_, cell_;
    std::vector<double> ends_;
};

}  // namespace replaylab
