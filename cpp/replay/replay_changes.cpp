// Changes of steps that are stored.
#include "replay/replay.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace {

void refuse_outside(const MappedRows* outside, const char* call) {
    if (outside == nullptr) return;
    fail("ConfigError", "rows in a storage are other processes' too, which use them at any time, so `", call,
         "` cannot change them; make the buffer without `storage`");
}

}  // namespace

bool Replay::write(const std::int64_t* given, std::int64_t n, const char* const* sources,
                   std::int64_t& written) {
    const auto held = lock_.take();
    refuse_outside(outside_.get(), "write");
    if (!may_change()) return false;
    const std::int64_t* ids = checked(given, n);
    columns_.clear();
    for (const std::int64_t field : stored_) columns_.push_back(sources[field]);
    written = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        places_.clear();
        const std::int64_t count = for_stored(r, ids, n, [&](std::int64_t k, std::int64_t slot) {
            slots_.push_back(slot);
            places_.push_back(k);
        });
        if (count == 0) continue;
        written += count;
        ++one.writes;
        if (rows_.compressed()) rows_.reserve(r, (one.next_rows ? 2 : 1) * count);
        rows_.scatter(r, slots_.data(), places_.data(), count, columns_.data());
        for (std::int64_t k = 0; k < count && one.next_rows; ++k)
            one.next_rows->write(slots_[static_cast<std::size_t>(k)], sources,
                                 places_[static_cast<std::size_t>(k)]);
        if (rows_.compressed()) rows_.tidy(r);
    }
    return true;
}

std::int64_t Replay::remove(const std::int64_t* given, std::int64_t n) {
    const auto held = lock_.take();
    refuse_outside(outside_.get(), "remove");
    const std::int64_t* ids = checked(given, n);
    std::int64_t found = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        found += for_stored(r, ids, n, [&](std::int64_t, std::int64_t slot) { slots_.push_back(slot); });
        std::size_t count = 0;  // without those of equal ids
        for (const std::int64_t slot : slots_) {
            if (!one.ring.shows(slot)) continue;
            one.ring.remove(slot);
            if (one.episodes) one.episodes->removed(slot);
            slots_[count++] = slot;
        }
        slots_.resize(count);
        if (!slots_.empty())
            one.sampler->removed(one.ring, slots_.data(), static_cast<std::int64_t>(slots_.size()));
    }
    return found;
}

}  // namespace replaylab
