#include "storage/mapped_rows.hpp"

#include <algorithm>
#include <limits>

#include "storage/mapped_layout.hpp"
#include "support/error.hpp"

#if defined(REPLAYLAB_PROBE)
void between_stores();  // a test's: kills this process, or lets it wait, between any two stores
#else
inline void between_stores() {}
#endif

namespace replaylab {

namespace {

constexpr std::int64_t kAhead = 64;  // rows to be overwritten that are read from disk while others are filled

}  // namespace

// Everything in the file may be anything, as another process may have written anything: no number from it is
// used as a place before it is known to be one, and no loop waits for what a sound file alone would bring.
void MappedRows::damaged(const char* why) const {
    fail("StorageError", "`", path_, "` is damaged: ", why, "; remove it, or put back a copy");
}

bool MappedRows::find(std::int64_t replica, std::int64_t id, Step& step) const {
    const Section& one = section(replica);
    const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
    const std::uint64_t word = one.log[id % log_].load(std::memory_order_acquire);
    if (lap_of(word) != lap) {
        // A step that takes this one's word comes a whole log later, and the head was there before.
        if (next_id(replica) < id + log_) damaged("its log lacks a step that its head counts");
        return false;
    }
    step.row = row_of(word);
    if (step.row >= zero_row()) damaged("its log names a row it has not");
    const std::uint32_t stream = one.marks[step.row].stream.load(std::memory_order_relaxed);
    step.step = one.marks[step.row].step.load(std::memory_order_relaxed);
    if (!whole_since(replica, id)) return false;
    step.ends = (stream & kEnds) != 0;
    step.stream = stream & ~kEnds;
    if (step.stream >= streams()) damaged("a step of no writer's");
    return true;
}

char* MappedRows::blank(std::int64_t replica) {
    if (place_ < 0 || born_ != forks()) take_place();
    return section(replica).rows + blanks_[static_cast<std::size_t>(replica)] * stride_;
}

void MappedRows::end_episode(std::int64_t replica, std::int64_t env) {
    if (place_ >= 0) steps_[static_cast<std::size_t>(replica * num_envs_ + env)] = 0;
}

std::int64_t MappedRows::publish(std::int64_t replica, std::int64_t env, bool ends) {
    const Section& one = section(replica);
    Record& record = one.records[place_];
    std::int64_t& blank = blanks_[static_cast<std::size_t>(replica)];
    std::uint32_t& step = steps_[static_cast<std::size_t>(replica * num_envs_ + env)];
    Mark& mark = one.marks[blank];
    mark.stream.store(static_cast<std::uint32_t>(place_ * num_envs_ + env) | (ends ? kEnds : 0),
                      std::memory_order_relaxed);
    mark.step.store(step, std::memory_order_relaxed);
    if (header_->unflushed.load(std::memory_order_relaxed) == 0) mark_unflushed();
    for (;;) {
        std::int64_t id = next_id(replica);
        Word& place = one.log[id % log_];
        std::uint64_t word = place.load(std::memory_order_acquire);
        const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
        if (lap_of(word) == lap) {  // id is taken, and its taker has not said so yet
            one.head->compare_exchange_strong(id, id + 1);
            continue;
        }
        if (lap_of(word) != lap - 1) {  // the head has moved on since it was read
            if (lap_of(word) < lap || next_id(replica) == id) damaged("its log does not fit its head");
            continue;
        }
        const std::int64_t old = row_of(word);
        if (old >= zero_row()) damaged("its log names a row it has not");
        // Before a step leaves the log its row's mark says that it was there: settle() asks for that.
        std::int64_t claim = claimed(id - log_);
        if (one.marks[old].claim.load(std::memory_order_relaxed) == claim)
            one.marks[old].claim.compare_exchange_strong(claim, was(id - log_));
        // What settle() needs if this process ends before it has said whether the swap succeeded.
        between_stores();
        mark.claim.store(claimed(id), std::memory_order_release);
        between_stores();
        record.old.store(old, std::memory_order_release);
        between_stores();
        record.id.store(id, std::memory_order_release);
        between_stores();
        const bool swapped = place.compare_exchange_strong(word, word_of(lap, blank));
        between_stores();
        if (swapped) {
            std::int64_t head = id;
            one.head->compare_exchange_strong(head, id + 1);
            between_stores();
            record.row.store(old, std::memory_order_release);
        }
        between_stores();
        record.id.store(kNone, std::memory_order_release);
        if (!swapped) continue;
        blank = old;
        if (exceeds_memory_) {
            const std::uint64_t later = one.log[(id + kAhead) % log_].load(std::memory_order_relaxed);
            ask_for(one.rows + row_of(later) * stride_, stride_);
        }
        step = ends || step + 1 == std::numeric_limits<std::uint32_t>::max() ? 0 : step + 1;
        // Whoever sees what is written into the old row now also sees the head past it: see whole_since().
        std::atomic_thread_fence(std::memory_order_release);
        // A flush between the first look and the swap; see flush().
        if (header_->unflushed.load() == 0) mark_unflushed();
        return id;
    }
}

bool MappedRows::sound(const Section& one, const Record& record) const {
    const auto names_row = [&](std::int64_t row) { return row >= 0 && row < zero_row(); };
    const std::int64_t id = record.id.load(), head = one.head->load();
    return names_row(record.row.load()) && names_row(record.old.load()) && id >= kNone && id <= head &&
           head >= 0 && head <= most_;
}

// The row a place owns, after its former holder ended at any point of publish(), or of settle().
std::int64_t MappedRows::settle(const Section& one, Record& record) const {
    std::int64_t row = record.row.load();
    const std::int64_t id = record.id.load(), old = record.old.load();
    if (id != kNone && row != old) {
        const auto lap = static_cast<std::uint64_t>(id / log_ + 1);
        const std::uint64_t word = one.log[id % log_].load();
        bool published = lap_of(word) == lap && row_of(word) == row;
        if (lap_of(word) > lap) published = one.marks[row].claim.load() != claimed(id);
        if (published) {
            std::int64_t head = id;
            one.head->compare_exchange_strong(head, id + 1);
            row = old;
        }
        between_stores();
        record.row.store(row);
        between_stores();
    }
    record.id.store(kNone);
    std::atomic_thread_fence(std::memory_order_release);
    return row;
}

void MappedRows::take_place() {
    if (born_ != forks()) open_again();
    place_ = -1;
    std::int64_t place = -1;
    for (std::int64_t w = 0; w < writers_ && place < 0; ++w)
        if (lock(w)) place = w;
    if (place < 0)
        fail("StorageError", "`", path_, "` has places for ", writers_,
             " processes that add at the same time, and all are taken; make it with more `writers`");
    if (!std::all_of(sections_.begin(), sections_.end(),
                     [&](const Section& one) { return sound(one, one.records[place]); })) {
        unlock(place);
        damaged("the record of a writer's place");
    }
    blanks_.clear();
    for (const Section& one : sections_) blanks_.push_back(settle(one, one.records[place]));
    steps_.assign(sections_.size() * static_cast<std::size_t>(num_envs_), 0);
    place_ = place;
}

// Whether the log and the places name every row exactly once, and the log's laps fit its head.
bool MappedRows::consistent() const {
    for (const Section& one : sections_) {
        std::vector<bool> named(static_cast<std::size_t>(zero_row()), false);
        const auto name = [&](std::int64_t row) {
            if (row < 0 || row >= zero_row() || named[static_cast<std::size_t>(row)]) return false;
            named[static_cast<std::size_t>(row)] = true;
            return true;
        };
        const std::int64_t head = one.head->load();
        if (head < 0 || head > most_) return false;
        for (std::int64_t n = 0; n < log_; ++n) {
            const std::uint64_t word = one.log[n].load();
            const auto lap = static_cast<std::uint64_t>(head / log_ + (n < head % log_));
            const bool ahead =
                n == head % log_ && lap_of(word) == lap + 1;  // taken, and the head not yet moved
            if ((lap_of(word) != lap && !ahead) || !name(row_of(word))) return false;
        }
        for (std::int64_t w = 0; w < writers_; ++w)
            if (!sound(one, one.records[w]) || !name(settle(one, one.records[w]))) return false;
    }
    return true;
}

}  // namespace replaylab
