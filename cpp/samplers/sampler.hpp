// What a sampler is to the core. One object per replica holds that replica's state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/ring.hpp"
#include "support/random.hpp"
#include "support/state.hpp"

namespace replaylab {

// What Python's sampler object says, already checked there.
struct SamplerConfig {
    std::string kind;  // one of the table's: sampler_table.hpp
    std::map<std::string, double> options;
    std::vector<SamplerConfig> parts;  // of a mixture

    // Throws where the configuration lacks it.
    double option(const std::string& name) const;
    std::int64_t whole(const std::string& name) const { return static_cast<std::int64_t>(option(name)); }
};

// Where a draw of n rows is written, one entry a row.
struct Draw {
    std::int64_t* slot;
    double* probability;
    float* weight;
};

// Of a law in proportion to a number of each row (a step, or a sequence): those numbers together. The laws of
// several replays join into one by them.
struct LawTotals {
    double total = 0.0;
    double least = 0.0;  // of the rows that can be drawn; +inf if there is none
    std::int64_t rows = 0;
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

    // Nothing where the law is another one, or a row depends on the rows drawn before.
    virtual std::optional<LawTotals> totals(const Ring&) const { return std::nullopt; }

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

  protected:
    // Throws when there are fewer rows than a batch without repetition needs.
    static void need(const char* sampler, const Ring& ring, std::int64_t batch, std::int64_t rows);
};

// Where a mixture's part keeps its state, within the mixture's.
inline std::string part_prefix(std::size_t part) { return "part" + std::to_string(part) + "."; }

void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots);

// Rows that all have this probability, and weight 1.
void fill_alike(const Draw& out, std::int64_t n, double probability);

}  // namespace replaylab
