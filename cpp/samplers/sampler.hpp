// The interface of samplers. Each replica has one sampler object, which holds that replica's state.
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

// The options of a sampler, as Python has checked them.
struct SamplerConfig {
    std::string kind;  // one of the table's: sampler_table.hpp
    std::map<std::string, double> options;
    std::vector<SamplerConfig> parts;  // of a mixture
    std::string clock;                 // the field that says the time of a step; "": none

    // Returns an option; throws if the configuration lacks it.
    double option(const std::string& name) const;
    // Returns an option as an integer; throws if the configuration lacks it.
    std::int64_t whole(const std::string& name) const { return static_cast<std::int64_t>(option(name)); }
};

// Where a draw of n rows is written, one entry a row.
struct Draw {
    std::int64_t* slot;
    double* probability;
    float* weight;
};

// Sums of the masses m of all rows (steps, or sequences), for a sampling distribution P(i) = m_i / Σ m. They
// combine the distributions of several replays into one.
struct SamplingTotals {
    double total = 0.0;
    double least = 0.0;  // the smallest positive mass; +inf if there is none
    std::int64_t rows = 0;
};

// A stored step that ended its episode, truncated if not terminated.
struct End {
    std::int64_t id;
    bool terminated;
};

class Sampler {
  public:
    virtual ~Sampler() = default;

    // Returns the number of rows in a batch of requested size `batch`.
    virtual std::int64_t rows(std::int64_t batch) const { return batch; }

    // Returns how many steps wait to be drawn, of a sampler that gives each once.
    virtual std::int64_t waiting(const Ring&) const { return 0; }

    // Throws if such a batch cannot be drawn from this ring.
    virtual void check(const Ring& ring, std::int64_t batch) const;

    // Draws rows(batch) slots with their probabilities and importance weights. `scheduled` points to the
    // sampler's scheduled number (β, η), if it has one; to one for each part of a mixture.
    virtual void draw(const Ring& ring, Random& random, std::int64_t batch, const double* scheduled,
                      const Draw& out) = 0;

    // Ends a draw: samplers whose state depends on drawn batches update it. Until then distribution() returns
    // the probabilities that the batch was drawn with.
    virtual void finish(const Ring&, const std::int64_t*, std::int64_t) {}

    // Writes, for n stored slots, the probability that a random row of the next batch is that step.
    virtual void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                              const double* scheduled, double* out) const = 0;

    // Returns nothing if the sampling distribution is not proportional to masses, or a row depends on rows
    // drawn before.
    virtual std::optional<SamplingTotals> totals(const Ring&) const { return std::nullopt; }

    // Records n new steps in these slots, in this order; the ring already holds them.
    virtual void stored(const Ring&, Random&, const std::int64_t*, std::int64_t) {}

    // This step ended its episode, truncated if not terminated; stored() knows the step already, and perhaps
    // removed().
    // Called where the table's line says `episodes`.
    virtual void ended(const Ring&, std::int64_t, bool) {}

    // The ring has lost the steps in these slots, each once, to which no others came.
    virtual void removed(const Ring&, const std::int64_t*, std::int64_t) {}

    // Applies the learner's feedback for stored steps: TD errors, or the priorities themselves.
    virtual void update(const Ring&, const std::int64_t*, const double*, std::int64_t, bool) {}

    // Saves or restores the sampler's state.
    virtual void visit(StateVisitor&) {}

    // Returns whether the restored state is valid for this ring: every slot in it is in use.
    virtual bool fits(const Ring&) const { return true; }

    // Recomputes derived state after visit() has restored this sampler and the ring. Where the table's line
    // says `episodes`, `ends` are the stored steps that ended their episodes, oldest first; null if it is not
    // known which of them terminated.
    virtual void restored(const Ring&, const std::vector<End>*) {}

  protected:
    // Throws if there are fewer rows than a batch without repetition needs.
    static void need(const char* sampler, const Ring& ring, std::int64_t batch, std::int64_t rows);

    // Throws that every stored step has priority 0.
    [[noreturn]] static void refuse_zeros(const Ring& ring);
};

// Returns the prefix of a part's state within that of its mixture.
inline std::string part_prefix(std::size_t part) { return "part" + std::to_string(part) + "."; }

// Draws n stored slots uniformly, with replacement.
void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots);

// Fills n rows with this probability and weight 1.
void fill_alike(const Draw& out, std::int64_t n, double probability);

}  // namespace replaylab
