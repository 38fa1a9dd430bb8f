// How gradients become steps: Adam (Kingma & Ba 2015), RMSprop (Hinton 2012; centred: Graves 2013) and
// gradient descent with momentum, as PyTorch computes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "support/dispatch.hpp"

namespace replaylab {

enum class StepRule { adam, rmsprop, momentum };

struct Optimizer {
    StepRule rule;
    double mean_decay;    // of the gradients' average; 1: none is kept
    double square_decay;  // of their squares' average
    double epsilon;
};

// Of the gradient g, with averages m and v:
//   adam      m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − rate·m / (√v + epsilon), where the bias
//             corrections are in rate and epsilon;
//   rmsprop   m and v alike, θ ← θ − rate·g / (√(v − m²) + epsilon);
//   momentum  m ← β₁m + g, θ ← θ − rate·m.
struct OptimizerStep {
    StepRule rule;
    float mean_decay, square_decay, mean_share, square_share, rate, epsilon;
};

// 1 − β. Above 0.9999, where a float's 1 − β is wrong by more than 0.03 %, it is rounded once, as PyTorch
// does; below, as every study so far was trained.
inline float share_of(double decay) {
    return decay > 0.9999 ? static_cast<float>(1.0 - decay) : 1.0f - static_cast<float>(decay);
}

// What Adam's averages lack of their gradients' at the `update`-th update, from 1, as they start at 0;
// others 1.
struct Bias {
    double mean = 1.0, root_square = 1.0;
};

inline Bias bias_of(const Optimizer& optimizer, std::int64_t update) {
    if (optimizer.rule != StepRule::adam) return {};
    const auto count = static_cast<double>(update);
    return {1.0 - std::pow(optimizer.mean_decay, count),
            std::sqrt(1.0 - std::pow(optimizer.square_decay, count))};
}

inline OptimizerStep step_of(const Optimizer& optimizer, const Bias& bias, double learning_rate) {
    return {optimizer.rule,
            static_cast<float>(optimizer.mean_decay),
            static_cast<float>(optimizer.square_decay),
            share_of(optimizer.mean_decay),
            share_of(optimizer.square_decay),
            static_cast<float>(learning_rate * bias.root_square / bias.mean),
            static_cast<float>(optimizer.epsilon * bias.root_square)};
}

REPLAYLAB_INLINE void take_step(const OptimizerStep& step, const float* g, float* mean, float* square,
                                float* parameters, std::int64_t count) {
    if (step.rule == StepRule::momentum) {
        for (std::int64_t i = 0; i < count; ++i) {
            mean[i] = step.mean_decay * mean[i] + g[i];
            parameters[i] -= step.rate * mean[i];
        }
        return;
    }
    if (step.rule == StepRule::adam) {
        for (std::int64_t i = 0; i < count; ++i) {
            mean[i] += step.mean_share * (g[i] - mean[i]);
            square[i] = step.square_decay * square[i] + step.square_share * g[i] * g[i];
            parameters[i] -= step.rate * mean[i] / (std::sqrt(square[i]) + step.epsilon);
        }
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        mean[i] += step.mean_share * (g[i] - mean[i]);
        square[i] = step.square_decay * square[i] + step.square_share * g[i] * g[i];
        const float variance = std::max(square[i] - mean[i] * mean[i], 0.0f);  // rounding may take it below
        parameters[i] -= step.rate * g[i] / (std::sqrt(variance) + step.epsilon);
    }
}

}  // namespace replaylab
