// R deep Q-learners: action values, and one update of all from a drawn batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "learning/convolution.hpp"
#include "support/fork_safe.hpp"

namespace replaylab {

struct QSettings {
    bool is_double, huber;
    float max_grad_norm;         // infinity: no bound
    float least, most;           // of a target
    float learning_rate;         // of Adam
    float tau;                   // how far the target network goes to the online one when it does
    std::int64_t target_period;  // updates between two such moves
};

// A drawn batch; arrays of all replicas, (R, B, ...).
struct QBatch {
    std::int64_t rows;  // B
    const float* obs;
    const float* next_obs;
    const std::int64_t* action;
    const float* reward;
    const float* discount;  // what the bootstrap is multiplied by
    const float* weight;
};

// What an update saw, (R, B).
struct QSeen {
    float *td_error, *slope, *q;
};

// Several threads may call it: each call waits for its turn.
class QLearners {
  public:
    QLearners(const Network& network, const QSettings& settings, std::int64_t inputs, std::int64_t replicas);

    // Q(s, ·) into `q` (R, rows, A), for `obs` (R, rows, inputs).
    void q_values(const float* obs, std::int64_t rows, float* q);

    void update(const QBatch& batch, const QSeen& seen);

    const Network& network() const { return network_; }
    std::int64_t replicas() const { return replicas_; }

    // (R, parameters); with `updates` they are the whole state.
    std::vector<float> online, target, mean, square;
    std::vector<float> gradients;  // of the latest update, after clipping
    std::int64_t updates = 0;

  private:
    void make_room(std::int64_t padded);
    void read_inputs(const float* obs, std::int64_t rows, std::int64_t padded);
    void find_targets(std::int64_t r, const QBatch& batch, std::int64_t padded);
    void find_errors(std::int64_t r, const QBatch& batch, std::int64_t padded, const QSeen& seen);

    Network network_;
    QSettings settings_;
    std::int64_t inputs_, replicas_;
    std::vector<float> activations_, slopes_, target_q_, targets_;  // scratch, for one replica
    std::vector<std::int64_t> actions_;  // of the batch, which the caller may change meanwhile
    std::unique_ptr<ForkSafeMutex> mutex_ = std::make_unique<ForkSafeMutex>();
};

}  // namespace replaylab
