// What a replay is at a moment, all of it: copied out for a save, put back, and dropped.
#include <algorithm>
#include <cstring>

#include "replay/replay.hpp"
#include "samplers/sampler_table.hpp"
#include "support/error.hpp"

namespace replaylab {

bool Replay::find_rows() {
    if (!outside_) return true;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        const Ring& ring = replays_[static_cast<std::size_t>(r)].ring;
        if (ring.next_id() > outside_->next_id(r)) return false;
        MappedRows::Step step;
        for (std::int64_t age = 0; age < ring.size(); ++age)
            if (outside_->find(r, ring.next_id() - 1 - age, step))
                rows_.point(r, ring.slot_of_age(age), step.row);
    }
    return true;
}

bool Replay::restored() {
    if (!find_rows()) return false;
    const bool by_episodes = has(sampler_, &SamplerKind::episodes);
    const bool flags_stored = terminated_.field < 0 || column_of(terminated_.field) >= 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        for (std::int64_t age = one.ring.used() - 1; age >= 0 && clock_.field >= 0; --age)
            slots_.push_back(one.ring.slot_in_use(age));
        if (clock_.field >= 0) note_times(r);
        one.added = one.now;
        std::vector<End> ends;
        if (by_episodes && flags_stored) ends = stored_ends(r);
        one.sampler->restored(one.ring, flags_stored ? &ends : nullptr);
    }
    return true;
}

void Replay::copy(StateVisitor& state) {
    const auto held = lock_.take();
    catch_up();
    visit(state);
}

std::uint64_t Replay::freeze(StateVisitor& state) {
    const auto held = lock_.take();
    if (lock_.frozen_by_another()) return 0;
    catch_up();
    visit(state);
    return lock_.freeze();
}

// The caller holds the lock, or is alone with a new buffer.
void Replay::visit(StateVisitor& state) {
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        state.within("replica" + std::to_string(r) + ".");
        one.ring.visit(state);
        std::vector<std::int64_t> words(4), last(one.last.begin(), one.last.end());
        const std::size_t counted = one.counts.size();
        std::memcpy(words.data(), one.random.state().data(), sizeof(Random::State));
        state.visit("random", words);
        state.must(words != std::vector<std::int64_t>(4, 0), "random");  // which would stay 0 for ever
        std::memcpy(one.random.state().data(), words.data(), sizeof(Random::State));
        state.visit("ended", last);
        for (const std::int64_t step : last) state.must(step >= kNone && step <= kOpen, "ended");
        std::copy(last.begin(), last.end(), one.last.begin());
        if (!one.envs.empty()) state.visit("environments", one.envs);
        for (const std::uint32_t env : one.envs) state.must(env < one.last.size(), "environments");
        state.visit("replay_counts", one.counts);
        state.must(one.counts.size() == counted, "replay_counts");
        state.count("samples", one.tally.samples);
        state.count("stale", one.tally.stale);
        // Saved only if there were any, so that other snapshots keep their format.
        if (state.restoring() ? state.has("writes") : one.writes > 0) state.count("writes", one.writes);
        if (one.episodes) one.episodes->visit(state);
        if (one.episodes && state.restoring()) state.must(one.episodes->fits(one.ring), "episodes");
        if (one.episodes && state.restoring())
            for (const std::int64_t slot : one.ring.removed_slots()) one.episodes->removed(slot);
        rows_.visit(r, state);
        if (one.next_rows) one.next_rows->visit(state);
        if (one.next_rows && state.restoring()) state.must(one.next_rows->fits(one.ring.used()), "next_rows");
        state.within(state.prefix() + "sampler.");
        one.sampler->visit(state);
        if (state.restoring()) state.must(one.sampler->fits(one.ring), "*");
    }
}

bool Replay::clear() {
    const auto held = lock_.take();
    if (outside_)
        fail("ConfigError",
             "rows in a storage are others' too, so `clear` cannot drop them; make "
             "a buffer on a new storage");
    if (lock_.frozen()) {
        if (!lock_.frozen_by_me()) return false;
        fail("SnapshotError",
             "the buffer cannot be cleared by the thread that is saving it, from a signal handler or a "
             "callback; clear it after save() has returned");
    }
    std::vector<std::unique_ptr<Sampler>> samplers;  // first of all: making them may fail
    for (std::int64_t r = 0; r < replicas(); ++r)
        samplers.push_back(make_sampler(sampler_, rows_.capacity()));
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        for (std::int64_t slot = 0; slot < one.ring.used(); ++slot) {
            if (one.episodes) one.episodes->dropped(slot);
            if (one.next_rows) one.next_rows->dropped(slot);
            rows_.release(r, slot);
        }
        if (rows_.compressed()) rows_.tidy(r);
        one.ring.clear();
        one.sampler = std::move(samplers[static_cast<std::size_t>(r)]);
        std::fill(one.counts.begin(), one.counts.end(), 0);
        one.now = one.added = kNever;
    }
    return true;
}

}  // namespace replaylab
