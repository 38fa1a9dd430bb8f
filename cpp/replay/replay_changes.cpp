// Changes of steps that are stored.
#include "replay/replay.hpp"
#include "support/error.hpp"

namespace replaylab {

bool Replay::write(const std::int64_t* given, std::int64_t n, const char* const* sources,
                   std::int64_t& written) {
    const auto held = lock_.take();
    if (outside_)
        fail("ConfigError",
             "rows in a storage are read by other processes at any time, so `write` cannot change them; make "
             "the buffer without `storage`, or add the steps again");
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

}  // namespace replaylab
