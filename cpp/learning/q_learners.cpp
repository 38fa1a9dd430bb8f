#include "learning/q_learners.hpp"

#include <algorithm>
#include <cmath>

#include "learning/kernels.hpp"
#include "support/denormals.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace {

std::int64_t padded_rows(std::int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock * kRowBlock; }

// Rows (channel, y, x) become places (y, x), in each the channels along the rows; the rest of the rows is 0.
void read_numbers(const float* from, const Image& image, std::int64_t rows, std::int64_t padded, float* to) {
    const std::int64_t size = image.size();
    for (std::int64_t channel = 0; channel < image.channels; ++channel)
        for (std::int64_t place = 0; place < image.places(); ++place, ++from) {
            float* feature = to + (place * image.channels + channel) * padded;
            for (std::int64_t b = 0; b < rows; ++b) feature[b] = from[b * size];
            std::fill(feature + rows, feature + padded, 0.0f);
        }
}

}  // namespace

QLearners::QLearners(const Network& network, const QSettings& settings, std::int64_t replicas)
    : network_(network), settings_(settings), replicas_(replicas) {
    const auto size = static_cast<std::size_t>(replicas * network_.parameters());
    for (auto* values : {&online, &target, &mean, &square, &gradients}) values->assign(size, 0.0f);
    learning_rates.assign(static_cast<std::size_t>(replicas), 0.0f);
}

void QLearners::make_room(std::int64_t padded) {
    const auto size = static_cast<std::size_t>(padded);
    const auto features = static_cast<std::size_t>(network_.features());
    if (targets_.size() >= size) return;
    activations_ = Numbers(features * size);
    slopes_ = Numbers(features * size);
    scratch_ = Numbers(static_cast<std::size_t>(network_.scratch()) * size);
    target_q_.assign(static_cast<std::size_t>(network_.actions()) * size, 0.0f);
    targets_.assign(size, 0.0f);
}

// Rows from `first` on become an image of the network's layout.
void QLearners::read_inputs(const QInputs& obs, std::int64_t first, std::int64_t rows, std::int64_t padded) {
    const Image& image = network_.inputs();
    if (obs.numbers) {
        read_numbers(obs.numbers + first * image.size(), image, rows, padded, activations_.data());
        return;
    }
    for (std::int64_t channel = 0; channel < image.channels; ++channel)
        kernels.pixels({obs.pixels + first * image.size() + channel * image.places(), 1.0f / 255.0f,
                        image.places(), image.size(), rows, padded, image.channels * padded,
                        activations_.data() + channel * padded});
}

void QLearners::q_values(const QInputs& obs, std::int64_t rows, float* q) {
    constexpr std::int64_t kMost = 256, kFew = 32;  // rows at a time, so that scratch stays small
    const bool images = network_.inputs().places() > 1;
    const std::int64_t most = images ? kFew : kMost, actions = network_.actions();
    const std::lock_guard<ForkSafeMutex> turn(*mutex_);
    const NoDenormals none;
    for (std::int64_t r = 0; r < replicas_; ++r)
        for (std::int64_t start = 0; start < rows; start += most) {
            const std::int64_t some = std::min(most, rows - start);
            const std::int64_t padded = images && some == 1 ? 1 : padded_rows(some);
            make_room(padded);
            read_inputs(obs, r * rows + start, some, padded);
            network_.forward(online.data() + r * network_.parameters(), activations_.data(), padded);
            const float* found = activations_.data() + network_.q() * padded;
            float* out = q + (r * rows + start) * actions;
            for (std::int64_t b = 0; b < some; ++b)
                for (std::int64_t a = 0; a < actions; ++a) out[b * actions + a] = found[a * padded + b];
        }
}

// targets_[b] = y = r + discount·Q⁻(s', a')
void QLearners::find_targets(std::int64_t r, const QBatch& batch, std::int64_t padded) {
    const std::int64_t rows = batch.rows, actions = network_.actions(), first = r * network_.parameters();
    const float* q = activations_.data() + network_.q() * padded;
    read_inputs(batch.next_obs, r * rows, rows, padded);
    network_.forward(target.data() + first, activations_.data(), padded);
    if (settings_.is_double) {
        std::copy(q, q + actions * padded, target_q_.begin());
        network_.forward(online.data() + first, activations_.data(), padded);
    }
    const float* value = settings_.is_double ? target_q_.data() : q;
    for (std::int64_t b = 0; b < rows; ++b) {
        std::int64_t best = 0;
        for (std::int64_t a = 1; a < actions; ++a)
            if (q[a * padded + b] > q[best * padded + b]) best = a;
        const float y = batch.reward[r * rows + b] + batch.discount[r * rows + b] * value[best * padded + b];
        targets_[b] = std::clamp(y, settings_.least, settings_.most);
    }
}

// δ = y − Q(s, a) and what follows from it, with ∂L/∂Q in `slopes_`.
void QLearners::find_errors(std::int64_t r, const QBatch& batch, std::int64_t padded, const QSeen& seen) {
    const std::int64_t rows = batch.rows;
    const float* q = activations_.data() + network_.q() * padded;
    float* grad_q = slopes_.data() + network_.q() * padded;
    std::fill(grad_q, grad_q + network_.actions() * padded, 0.0f);
    for (std::int64_t b = 0; b < rows; ++b) {
        const std::int64_t at = r * rows + b, cell = actions_[static_cast<std::size_t>(at)] * padded + b;
        const float error = targets_[b] - q[cell];
        const float slope = settings_.huber ? std::clamp(error, -1.0f, 1.0f) : error;
        seen.q[at] = q[cell];
        seen.td_error[at] = error;
        seen.slope[at] = slope;
        grad_q[cell] = batch.weight[at] * slope * (-1.0f / static_cast<float>(rows));
    }
}

void QLearners::update(const QBatch& batch, const QSeen& seen) {
    const std::int64_t padded = padded_rows(batch.rows), count = network_.parameters();
    const std::lock_guard<ForkSafeMutex> turn(*mutex_);
    const NoDenormals none;
    actions_.assign(batch.action, batch.action + replicas_ * batch.rows);
    for (const std::int64_t action : actions_)
        if (action < 0 || action >= network_.actions())
            fail("ConfigError", "an action must be from 0 to ", network_.actions() - 1,
                 ", but the batch holds ", action);
    make_room(padded);
    ++updates;
    const Bias bias = bias_of(settings_.optimizer, updates);
    const bool follow = updates % settings_.target_period == 0;
    for (std::int64_t r = 0; r < replicas_; ++r) {
        float* parameters = online.data() + r * count;
        float* gradient = gradients.data() + r * count;
        find_targets(r, batch, padded);
        read_inputs(batch.obs, r * batch.rows, batch.rows, padded);
        network_.forward(parameters, activations_.data(), padded);
        find_errors(r, batch, padded, seen);
        network_.backward(parameters, activations_.data(), slopes_.data(), gradient, scratch_.data(), padded);
        clip(gradient, count, settings_.max_grad_norm);
        const OptimizerStep step =
            step_of(settings_.optimizer, bias, learning_rates[static_cast<std::size_t>(r)]);
        kernels.step(step, gradient, mean.data() + r * count, square.data() + r * count, parameters, count);
        if (!follow) continue;
        float* old = target.data() + r * count;
        for (std::int64_t i = 0; i < count; ++i)
            old[i] =
                settings_.tau == 1.0f ? parameters[i] : old[i] + settings_.tau * (parameters[i] - old[i]);
    }
}

}  // namespace replaylab
