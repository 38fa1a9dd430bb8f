#include "replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "error.hpp"

namespace replaylab {

Replay::Replay(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas,
               std::int64_t num_envs, const SamplerConfig& sampler, const std::vector<Random::State>& streams,
               bool skip_after_end, const NStepConfig& n_step)
    : rows_(std::move(columns), capacity, replicas),
      num_envs_(num_envs),
      skip_after_end_(skip_after_end),
      nbytes_(rows_.nbytes() + replicas * (sampler_nbytes(sampler, capacity) +
                                           (n_step.steps > 0 ? Chain::nbytes(capacity) : 0))) {
    const auto& laid_out = rows_.columns();
    for (std::size_t c = 0; c < laid_out.size(); ++c) {
        if (laid_out[c].bytes != 1) continue;  // not the flags of this name
        if (laid_out[c].name == "terminated") terminated_ = static_cast<std::int64_t>(c);
        if (laid_out[c].name == "truncated") truncated_ = static_cast<std::int64_t>(c);
    }
    for (std::int64_t r = 0; r < replicas; ++r)
        replays_.push_back(Single{Ring(capacity), Random(streams[static_cast<std::size_t>(r)]),
                                  Sampler::make(sampler, capacity),
                                  std::vector<char>(static_cast<std::size_t>(num_envs), 0),
                                  Chain(n_step.steps > 0 ? capacity : 0, num_envs)});
    if (n_step.steps > 0) n_step_ = std::make_unique<NStep>(n_step, rows_);
}

void Replay::add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::int64_t step = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        places_.clear();
        for (std::int64_t t = 0; t < steps; ++t) {
            for (std::int64_t e = 0; e < num_envs_; ++e, ++step) {
                ids[step] = -1;
                if (where != nullptr && !where[step]) continue;
                const bool ends = (terminated_ >= 0 && sources[terminated_][step] != 0) ||
                                  (truncated_ >= 0 && sources[truncated_][step] != 0);
                char& ended = one.ended[static_cast<std::size_t>(e)];
                const bool resetting = skip_after_end_ && ended != 0;
                ended = ends && !resetting;
                if (resetting) continue;
                ids[step] = one.ring.next_id();
                slots_.push_back(one.ring.push());
                places_.push_back(step);
                if (n_step_) one.chain.stored(one.ring, slots_.back(), e, ends);
            }
        }
        const auto stored = static_cast<std::int64_t>(slots_.size());
        if (stored == 0) continue;
        rows_.scatter(r, slots_.data(), places_.data(), stored, sources);
        one.sampler->stored(one.ring, one.random, slots_.data(), stored);
    }
}

void Replay::sample(std::int64_t batch, const double* scheduled, char* const* targets, std::int64_t* ids,
                    double* probabilities, float* weights, const NStepTargets& extra) {
    const std::int64_t n = batch_rows(batch);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Single& one : replays_) one.sampler->check(one.ring, batch);
    slots_.resize(static_cast<std::size_t>(n));
    places_.resize(static_cast<std::size_t>(n));
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        one.sampler->draw(one.ring, one.random, batch, scheduled,
                          Draw{slots_.data(), probabilities + r * n, weights + r * n});
        one.sampler->finish(one.ring, slots_.data(), n);
        std::iota(places_.begin(), places_.end(), r * n);
        fill(r, n, targets, &extra);
        for (std::int64_t k = 0; k < n; ++k)
            ids[r * n + k] = one.ring.id(slots_[static_cast<std::size_t>(k)]);
    }
}

// Copies the steps in slots_ to their places_, with whatever is put together of several steps.
void Replay::fill(std::int64_t replica, std::int64_t n, char* const* targets, const NStepTargets* extra) {
    const Single& one = replays_[static_cast<std::size_t>(replica)];
    if (n_step_ && extra != nullptr)
        n_step_->gather(one.ring, one.chain, replica, slots_.data(), places_.data(), n, targets, *extra);
    else
        rows_.gather(replica, slots_.data(), places_.data(), n, targets);
}

void Replay::check_id(std::int64_t replica, std::int64_t id) const {
    const std::int64_t next = replays_[static_cast<std::size_t>(replica)].ring.next_id();
    if (id >= -1 && id < next) return;
    if (next == 0) fail("IdError", "id ", id, " was never given out: no step was stored yet");
    fail("IdError", "id ", id, " was never given out: ids so far are 0 to ", next - 1,
         " (and -1 for a step that was not stored); pass the ids that add or sample returned");
}

std::int64_t Replay::update(const std::int64_t* ids, const double* values, std::int64_t n, bool td_errors) {
    for (std::int64_t k = 0; k < n * replicas(); ++k) {
        if (!std::isfinite(values[k]) || (!td_errors && values[k] < 0.0))
            fail("PriorityError", td_errors ? "td_error" : "priority", " must be finite",
                 td_errors ? "" : " and not negative", ", but entry ", k, " (id ", ids[k], ") is ", values[k],
                 "; no priority was changed");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::int64_t k = 0; k < n * replicas(); ++k) check_id(k / n, ids[k]);
    std::int64_t updated = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        values_.clear();
        for (std::int64_t k = r * n; k < (r + 1) * n; ++k) {
            if (!one.ring.holds(ids[k])) continue;
            slots_.push_back(one.ring.slot(ids[k]));
            values_.push_back(values[k]);
        }
        const auto count = static_cast<std::int64_t>(slots_.size());
        if (count > 0) one.sampler->update(slots_.data(), values_.data(), count, td_errors);
        updated += count;
    }
    return updated;
}

void Replay::probabilities(const std::int64_t* ids, std::int64_t n, std::int64_t batch,
                           const double* scheduled, double* out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::int64_t k = 0; k < n * replicas(); ++k) check_id(k / n, ids[k]);
    std::fill(out, out + n * replicas(), 0.0);
    for (std::int64_t r = 0; r < replicas(); ++r) {
        const Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        places_.clear();
        for (std::int64_t k = r * n; k < (r + 1) * n; ++k) {
            if (!one.ring.holds(ids[k])) continue;
            slots_.push_back(one.ring.slot(ids[k]));
            places_.push_back(k);
        }
        values_.resize(slots_.size());
        one.sampler->law(one.ring, slots_.data(), static_cast<std::int64_t>(slots_.size()), batch, scheduled,
                         values_.data());
        for (std::size_t k = 0; k < places_.size(); ++k) out[places_[k]] = values_[k];
    }
}

void Replay::gather(const std::int64_t* ids, std::int64_t n, char* const* targets,
                    const NStepTargets* extra) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::int64_t k = 0; k < n * replicas(); ++k) {
        check_id(k / n, ids[k]);
        const Ring& ring = replays_[static_cast<std::size_t>(k / n)].ring;
        if (!ring.holds(ids[k]))
            fail("IdError", "id ", ids[k], " is not stored: the buffer now holds ids ",
                 ring.next_id() - ring.size(), " to ", ring.next_id() - 1,
                 "; steps that were overwritten cannot be read");
    }
    for (std::int64_t r = 0; r < replicas(); ++r) {
        slots_.clear();
        places_.clear();
        for (std::int64_t k = r * n; k < (r + 1) * n; ++k) {
            slots_.push_back(replays_[static_cast<std::size_t>(r)].ring.slot(ids[k]));
            places_.push_back(k);
        }
        fill(r, n, targets, extra);
    }
}

void Replay::counts(std::int64_t* sizes, std::int64_t* next_ids) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t r = 0; r < replays_.size(); ++r) {
        sizes[r] = replays_[r].ring.size();
        next_ids[r] = replays_[r].ring.next_id();
    }
}

// The caller holds the mutex, or is alone with a new buffer.
void Replay::visit(StateVisitor& state) {
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        state.within("replica" + std::to_string(r) + ".");
        std::int64_t next_id = one.ring.next_id();
        state.visit("next_id", next_id);
        one.ring.restore(next_id);
        std::vector<std::int64_t> words(4), ended(one.ended.begin(), one.ended.end());
        std::memcpy(words.data(), one.random.state().data(), sizeof(Random::State));
        state.visit("random", words);
        std::memcpy(one.random.state().data(), words.data(), sizeof(Random::State));
        state.visit("ended", ended);
        std::copy(ended.begin(), ended.end(), one.ended.begin());
        if (n_step_) one.chain.visit(state);
        state.within(state.prefix() + "sampler.");
        one.sampler->visit(state);
    }
}

}  // namespace replaylab
