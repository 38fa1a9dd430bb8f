// Temporal-difference updates of R tables of action values, each replica on its own rows.
#pragma once

#include <cstdint>

namespace replaylab {

// Arrays (R, B), row by row, except for the tables (R, S, A), ε (R) and the streams (R, 4).
struct TabularUpdate {
    std::int64_t replicas, rows, states, actions;
    double* q;
    const std::int64_t *obs, *action, *next_obs, *next_action;  // no next_action: all are −1
    const double *reward, *discount, *step_size, *epsilon;
    // What a target takes of the next state's values. Null: (1 − ε)·max + ε·mean. Otherwise the value of the
    // given next action; if it is negative, of an ε-greedy one drawn from the stream at the row's turn.
    std::uint64_t* streams;
    double *td_error, *q_before;

    // Throws, before anything has changed, if a state or an action is not in the tables.
    void check() const;

    // Row after row, q[s, a] += step_size·δ with δ = reward + discount·target(s') − q[s, a]: each row sees
    // what the rows before it have changed, so a state and action that comes twice is updated twice.
    void run() const;
};

}  // namespace replaylab
