// Proportional prioritization (Schaul et al. 2016): P(i) = p_i^α / Σ p^α over a sum tree.
#pragma once

#include <vector>

#include "sampler.hpp"
#include "sum_tree.hpp"

namespace replaylab {

class Prioritized : public Sampler {
  public:
    Prioritized(const SamplerConfig& config, std::int64_t capacity);

    void check(const Ring& ring, std::int64_t batch) const override;
    void draw(const Ring& ring, Random& random, std::int64_t batch, double beta, const Draw& out) override;
    double probability(const Ring& ring, std::int64_t slot, std::int64_t batch) const override;
    void stored(const std::int64_t* slots, std::int64_t n) override;
    void update(const std::int64_t* slots, const double* values, std::int64_t n, bool td_errors) override;

  private:
    void fill_weights(const Ring& ring, std::int64_t n, double beta, const Draw& out);

    double alpha_;
    double epsilon_;
    std::string normalize_;
    SumTree tree_;  // leaves hold p^α
    std::vector<double> scratch_;
    std::vector<float> values_;
};

}  // namespace replaylab
