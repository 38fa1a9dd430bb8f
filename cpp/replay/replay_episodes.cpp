// Which environment a stored step is of, and what its next step follows.
#include <algorithm>

#include "replay/replay.hpp"
#include "support/error.hpp"

namespace replaylab {

void Replay::end_episode(const bool* where) {
    const auto held = lock_.take();
    for (Single& one : replays_) {
        for (std::int64_t e = 0; e < num_envs_; ++e) {
            if (where != nullptr && !*where++) continue;
            if (one.episodes && !outside_) cut(one, e);
            one.last[static_cast<std::size_t>(e)] = kNone;
            if (outside_) outside_->end_episode(&one - replays_.data(), e);
        }
        report_ends(one);
    }
}

// Ends the environment's episode at its newest step.
void Replay::cut(Single& one, std::int64_t env) {
    const std::int64_t slot = one.episodes->newest_open(env, one.ring);
    one.episodes->end_episode(env);
    if (slot >= 0) episode_ends_.push_back({one.ring.id(slot), false});
}

// Steps may have been overwritten by later ones of the same call.
void Replay::report_ends(Single& one) {
    for (const End end : episode_ends_)
        if (one.ring.keeps(end.id)) one.sampler->ended(one.ring, one.ring.slot(end.id), end.terminated);
    episode_ends_.clear();
}

// The column that stores a field, −1 if none does.
std::int64_t Replay::column_of(std::int64_t field) const {
    const auto found = std::find(stored_.begin(), stored_.end(), field);
    return found == stored_.end() ? -1 : found - stored_.begin();
}

// Whether a stored row says that its step terminated the episode.
bool Replay::terminated(std::int64_t replica, std::int64_t slot) {
    if (column_of(terminated_.field) < 0) return false;
    const auto column = static_cast<std::size_t>(column_of(terminated_.field));
    return is_set(rows_.columns()[column], rows_.value(replica, slot, column, scratch_));
}

// The steps that ended their episodes, oldest first.
std::vector<End> Replay::stored_ends(std::int64_t replica) {
    const Single& one = replays_[static_cast<std::size_t>(replica)];
    std::vector<End> ends;
    for (std::int64_t age = one.ring.used() - 1; age >= 0; --age) {
        const std::int64_t slot = one.ring.slot_in_use(age);
        const Episodes::Span span = one.episodes->whole(slot);
        if (span.step < span.high || slot == one.episodes->newest_open(span.env, one.ring)) continue;
        ends.push_back({one.ring.id(slot), terminated(replica, slot)});
    }
    return ends;
}

void Replay::next_steps(bool* begins, bool* left_out) const {
    const auto held = lock_.take();
    for (const Single& one : replays_) {
        for (std::int64_t e = 0; e < num_envs_; ++e) {
            *begins++ = one.episodes && !outside_ && one.episodes->begins(e);
            *left_out++ = resets_next(one, e);
        }
    }
}

std::int64_t Replay::environment(const Single& one, std::int64_t slot) const {
    if (one.episodes) return one.episodes->span(slot).env;
    return one.envs.empty() ? 0 : static_cast<std::int64_t>(one.envs[static_cast<std::size_t>(slot)]);
}

void Replay::environments(const std::int64_t* ids, std::int64_t n, std::int64_t* out) const {
    const auto held = lock_.take();
    const Single& one = replays_[0];
    if (!outside_ && !std::all_of(ids, ids + n, [&](std::int64_t id) { return one.ring.keeps(id); }))
        check_stored(0, ids, n);
    MappedRows::Step step;
    for (std::int64_t k = 0; k < n; ++k) {
        if (outside_)
            out[k] = outside_->find(0, ids[k], step) ? step.stream : -1;
        else
            out[k] = environment(one, one.ring.slot(ids[k]));
    }
}

std::vector<std::vector<std::int64_t>> Replay::open_steps() const {
    const auto held = lock_.take();
    std::vector<std::vector<std::int64_t>> found(replays_.size());
    for (std::size_t r = 0; r < replays_.size(); ++r) {
        const Single& one = replays_[r];
        std::vector<char> last = one.last;
        std::int64_t left = std::count(last.begin(), last.end(), static_cast<char>(kOpen));
        for (std::int64_t age = 0; age < one.ring.used() && left > 0; ++age) {
            const std::int64_t slot = one.ring.slot_in_use(age);
            char& of_env = last[static_cast<std::size_t>(environment(one, slot))];
            if (of_env != kOpen) continue;
            of_env = kNone;
            if (one.ring.shows(slot)) found[r].push_back(one.ring.id(slot));
            --left;
        }
    }
    return found;
}

void Replay::check_decided() const {
    for (const Single& one : replays_)
        for (std::int64_t e = 0; e < num_envs_; ++e)
            if (resets_next(one, e) || (open_matters_ && one.last[static_cast<std::size_t>(e)] == kOpen))
                fail("ConfigError",
                     "the buffer was saved in the middle of an episode, so it needs to know whether the next "
                     "steps continue that episode; pass continue_episodes=True to load() or restore() if the "
                     "environments continue where they were, or continue_episodes=False if they were reset");
}

void Replay::ask_to_continue(bool open_matters) {
    const auto held = lock_.take();
    asks_ = true;
    open_matters_ = open_matters;
}

bool Replay::asks_to_continue() const {
    const auto held = lock_.take();
    return asks_;
}

}  // namespace replaylab
