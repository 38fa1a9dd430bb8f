// R independent replays of E environments each: rows, ids, sampler state and random streams. Knows
// nothing of Python; every public member may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "chain.hpp"
#include "n_step.hpp"
#include "random.hpp"
#include "ring.hpp"
#include "row_store.hpp"
#include "sampler.hpp"

namespace replaylab {

class Replay {
  public:
    // `skip_after_end`: the step after an episode's end is the environment resetting itself
    // (Gymnasium's NEXT_STEP mode) and is not stored. Needs the boolean columns `terminated` and `truncated`.
    Replay(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas, std::int64_t num_envs,
           const SamplerConfig& sampler, const std::vector<Random::State>& streams, bool skip_after_end,
           const NStepConfig& n_step);

    // Stores steps laid out [R][T][E]; sources[c] points at column c of all of them. Rows where `where`
    // is false are not stored and get id −1. ids receives [R][T][E] numbers.
    void add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids);

    std::int64_t batch_rows(std::int64_t batch) const { return replays_[0].sampler->rows(batch); }

    // Draws a batch in every replica: targets[c] receives [R][rows] values of column c. `scheduled` holds the
    // sampler's numbers that change over a run; `extra` is used with n-step returns only.
    void sample(std::int64_t batch, const double* scheduled, char* const* targets, std::int64_t* ids,
                double* probabilities, float* weights, const NStepTargets& extra);

    // Feeds values [R][n] back for ids [R][n]; returns how many ids were still stored. Throws, changing
    // nothing, on an id never given out or a value that is no priority.
    std::int64_t update(const std::int64_t* ids, const double* values, std::int64_t n, bool td_errors);

    // The law of one row of a batch, for ids [R][n]; 0 for steps no longer stored.
    void probabilities(const std::int64_t* ids, std::int64_t n, std::int64_t batch, const double* scheduled,
                       double* out);

    // Copies the rows of ids [R][n] out: targets[c] receives [R][n] values of column c. Throws on an id that
    // is not stored. With `extra`, n-step returns are put together as in a batch.
    void gather(const std::int64_t* ids, std::int64_t n, char* const* targets, const NStepTargets* extra);

    // Per replica: steps stored now, and the id the next one will get.
    void counts(std::int64_t* sizes, std::int64_t* next_ids) const;

    // Walks over everything but the rows, to save or to restore it, replica by replica.
    void visit(StateVisitor& state);

    // Runs a function while no other call can change anything.
    template <typename Function>
    void frozen(Function function) {
        const std::lock_guard<std::mutex> lock(mutex_);
        function();
    }

    const RowStore& rows() const { return rows_; }
    std::int64_t replicas() const { return static_cast<std::int64_t>(replays_.size()); }
    std::int64_t num_envs() const { return num_envs_; }
    std::int64_t nbytes() const { return nbytes_; }

  private:
    struct Single {
        Ring ring;
        Random random;
        std::unique_ptr<Sampler> sampler;
        std::vector<char> ended;  // per environment: did its last step end an episode?
        Chain chain;              // of no slots where nothing looks ahead
    };

    void fill(std::int64_t replica, std::int64_t n, char* const* targets, const NStepTargets* extra);

    void check_id(std::int64_t replica, std::int64_t id) const;

    RowStore rows_;
    std::int64_t num_envs_;
    bool skip_after_end_;
    std::int64_t terminated_ = -1, truncated_ = -1;  // columns
    std::int64_t nbytes_;
    std::vector<Single> replays_;
    std::unique_ptr<NStep> n_step_;
    std::vector<std::int64_t> slots_, places_;  // scratch, under the mutex
    std::vector<double> values_;
    mutable std::mutex mutex_;
};

}  // namespace replaylab
