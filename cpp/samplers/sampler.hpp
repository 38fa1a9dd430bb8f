// What a sampler is to the core. One object per replica holds that replica's state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/ring.hpp"
#include "support/random.hpp"
#include "support/state.hpp"

namespace replaylab {

// What Python's sampler object says, already checked there.
struct SamplerConfig {
    std::string kind;
    std::map<std::string, double> options;
    std::vector<SamplerConfig> parts;  // of a mixture

    double option(const char* name) const { return options.at(name); }

    // Whether it keeps 32-bit numbers of slots.
    bool ranks() const;

    // Whether it asks the ring for episodes.
    bool needs_episodes() const { return options.count("episodes") != 0; }
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

    // Throws when this ring cannot give such a batch.
    virtual void check(const Ring& ring, std::int64_t batch) const;

    // Draws rows(batch) slots with their probabilities and importance weights. `scheduled` is the number of
    // this sampler that changes over a run (β, η), if it has one: a mixture has one for each part.
    virtual void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
                      const Draw& out) = 0;

    // The batch just drawn is now the last one: samplers that remember move on. Until then law() still gives
    // the chances the batch was drawn with.
    virtual void finish(const Ring& ring, const std::int64_t* slots, std::int64_t n);

    // For n stored slots: the chance that one row of the next batch, picked at random, is that step.
    virtual void law(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                     const double* scheduled, double* out) const = 0;

    // n new steps now lie in these slots, in this order; the ring already holds them.
    virtual void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n);

    // The learner's feedback for stored steps: TD errors, or priorities as they are.
    virtual void update(const Ring& ring, const std::int64_t* slots, const double* values, std::int64_t n,
                        bool td_errors);

    // Saves or restores what the sampler remembers.
    virtual void visit(StateVisitor& state);

    // Whether what was restored belongs to this ring: every number that is used as a slot is one in use.
    virtual bool fits(const Ring&) const { return true; }

    // visit() has restored all of this ring: what follows from the two is worked out again.
    virtual void restored(const Ring& ring);

    static std::unique_ptr<Sampler> make(const SamplerConfig& config, std::int64_t capacity);

  protected:
    // Throws when there are fewer rows than a batch without repetition needs.
    static void need(const char* sampler, const Ring& ring, std::int64_t batch, std::int64_t rows);
};

// The families a sampler is looked for in; each returns null for a kind that is not its own.
std::unique_ptr<Sampler> make_online_sampler(const SamplerConfig& config);
std::unique_ptr<Sampler> make_uniform_sampler(const SamplerConfig& config);
std::unique_ptr<Sampler> make_recency_sampler(const SamplerConfig& config);
std::unique_ptr<Sampler> make_correlated_sampler(const SamplerConfig& config);
std::unique_ptr<Sampler> make_reverse_sweep(const SamplerConfig& config);
std::unique_ptr<Sampler> make_shuffled_epochs(const SamplerConfig& config, std::int64_t capacity);
std::unique_ptr<Sampler> make_mixture(const SamplerConfig& config, std::int64_t capacity);
std::unique_ptr<Sampler> make_prioritized_sampler(const SamplerConfig& config, std::int64_t capacity);
std::unique_ptr<Sampler> make_placebo(const SamplerConfig& config, std::int64_t capacity);
std::unique_ptr<Sampler> make_rank_sampler(const SamplerConfig& config, std::int64_t capacity);

// Bytes of one replica's sampler state, before any is taken; with sequences, draws are in blocks.
std::int64_t sampler_nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks);

void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots);

// Rows that all have this probability, and weight 1.
void fill_alike(const Draw& out, std::int64_t n, double probability);

}  // namespace replaylab
