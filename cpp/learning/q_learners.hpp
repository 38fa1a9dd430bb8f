// R deep Q-learners: action values, and one update of all from a drawn batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "learning/network.hpp"
#include "support/arena.hpp"
#include "support/fork_safe.hpp"

namespace replaylab {

struct QSettings {
    bool is_double, huber;
    float max_grad_norm;  // infinity: no bound
    float least, most;    // of a target
    Optimizer optimizer;
    float tau;                   // how far the target network goes to the online one when it does
    std::int64_t target_period;  // updates between two such moves
};

// What networks see, (R, rows, channels, height, width): numbers, or pixels from 0 to 255, seen as shares of
// 255.
struct QInputs {
    const float* numbers;  // null: pixels
    const std::uint8_t* pixels;
};

// A drawn batch; arrays of all replicas, (R, B, ...).
struct QBatch {
    std::int64_t rows;  // B
    QInputs obs, next_obs;
    const std::int64_t* action;
    const float* reward;
    const float* discount;  // what the bootstrap is multiplied by
    const float* weight;
};

// What an update saw, (R, B).
struct QSeen {
    float *td_error, *slope, *q;
};

// Zeros on a 64-byte line, as vectors of a processor are read fastest.
class Numbers {
  public:
    explicit Numbers(std::size_t count) : arena_(std::make_unique<Arena>(count * sizeof(float))) {}
    float* data() const { return reinterpret_cast<float*>(arena_->data()); }

  private:
    std::unique_ptr<Arena> arena_;
};

// Several threads may call it: each call waits for its turn.
class QLearners {
  public:
    QLearners(const Network& network, const QSettings& settings, std::int64_t replicas);

    // Q(s, ·) into `q` (R, rows, A).
    void q_values(const QInputs& obs, std::int64_t rows, float* q);

    void update(const QBatch& batch, const QSeen& seen);

    const Network& network() const { return network_; }
    std::int64_t replicas() const { return replicas_; }

    // (R, parameters); with `updates` they are the whole state.
    std::vector<float> online, target, mean, square;
    std::vector<float> gradients;       // of the latest update, after clipping
    std::vector<float> learning_rates;  // (R,), of the next update
    std::int64_t updates = 0;

  private:
    void make_room(std::int64_t padded);
    void read_inputs(const QInputs& obs, std::int64_t first, std::int64_t rows, std::int64_t padded);
    void find_targets(std::int64_t r, const QBatch& batch, std::int64_t padded);
    void find_errors(std::int64_t r, const QBatch& batch, std::int64_t padded, const QSeen& seen);

    Network network_;
    QSettings settings_;
    std::int64_t replicas_;
    Numbers activations_{0}, slopes_{0}, scratch_{0};  // for one replica
    std::vector<float> target_q_, targets_;            // likewise
    std::vector<std::int64_t> actions_;                // of the batch, which the caller may change meanwhile
    std::unique_ptr<ForkSafeMutex> mutex_ = std::make_unique<ForkSafeMutex>();
};

}  // namespace replaylab
