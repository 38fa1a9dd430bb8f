// What a sampler is to the core, and the ones it has. One object per replica holds that replica's state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "random.hpp"
#include "ring.hpp"

namespace replaylab {

// What Python's sampler object says, already checked there.
struct SamplerConfig {
    std::string kind;    // "newest", "window", "uniform", "combined_plus", "combined_replace", "prioritized"
    double alpha = 0.0;  // prioritized: exponent
    double epsilon = 0.0;   // prioritized: added to |TD error|
    std::string normalize;  // prioritized: which weight becomes 1: "buffer", "batch", "none"
};

// Where a draw of n rows is written, one entry a row.
struct Draw {
    std::int64_t* slot;
    double* probability;
    float* weight;
};

class Sampler {
  public:
    virtual ~Sampler() = default;

    // Rows in a batch when `batch` were asked for.
    virtual std::int64_t rows(std::int64_t batch) const { return batch; }

    // Throws EmptyBufferError when this ring cannot give such a batch.
    virtual void check(const Ring& ring, std::int64_t batch) const;

    // Draws rows(batch) slots with their probabilities and importance weights of exponent beta.
    virtual void draw(const Ring& ring, Random& random, std::int64_t batch, double beta, const Draw& out) = 0;

    // The chance that one row of a batch, picked at random, is the step in this slot.
    virtual double probability(const Ring& ring, std::int64_t slot, std::int64_t batch) const = 0;

    // n new steps now lie in these slots, in this order.
    virtual void stored(const std::int64_t* slots, std::int64_t n);

    // The learner's feedback for stored steps: TD errors (take |·| + ε) or priorities as they are.
    virtual void update(const std::int64_t* slots, const double* values, std::int64_t n, bool td_errors);

    static std::unique_ptr<Sampler> make(const SamplerConfig& config, std::int64_t capacity);

    // Bytes of one replica's sampler state.
    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity);
};

}  // namespace replaylab
