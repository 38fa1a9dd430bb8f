#include "storage/next_rows.hpp"

#include <cstring>

namespace replaylab {

std::int64_t NextRows::take() {
    if (free_.empty()) {
        owners_.push_back(0);
        return rows_.closing_row() + used_++;
    }
    const std::int64_t row = free_.back();
    free_.pop_back();
    return row;
}

// Calls function(column number, column, source number) for every column a closing row has.
template <typename Function>
void NextRows::each_pair(Function function) const {
    for (std::size_t c = 0; c < pairs_.size(); ++c)
        if (pairs_[c] >= 0) function(c, rows_.columns()[c], static_cast<std::size_t>(pairs_[c]));
}

void NextRows::stored(std::int64_t slot, std::int64_t env, const char* const* sources,
                      const char* const* columns, std::int64_t place) {
    std::int64_t& newest = newest_[static_cast<std::size_t>(env)];
    std::int64_t row = kNone;
    if (newest != kNone) {  // does this step begin where that one led to?
        std::uint32_t& next = next_[static_cast<std::size_t>(newest)];
        const char* led_to = rows_.row(replica_, next);
        bool same = true;
        each_pair([&](std::size_t c, const Column& column, std::size_t) {
            const char* begun = columns[c] + place * column.bytes;
            const auto bytes = static_cast<std::size_t>(column.bytes);
            same = same && (column.compressed ? rows_.log(replica_, c).is_loose(env, begun)
                                              : std::memcmp(begun, led_to + column.offset, bytes) == 0);
        });
        // If it does, the ring's new row shows that observation, so the closing row is free: this step takes
        // it over for its own next observation. So an episode under way has one closing row, at its newest
        // step. If it does not, the closing row stays with the older step, and a loose compressed value is
        // packed for good.
        if (same) {
            row = next;
            next = static_cast<std::uint32_t>(slot);
        } else {
            each_pair([&](std::size_t c, const Column& column, std::size_t) {
                if (column.compressed)
                    rows_.set_ref(replica_, next, c, rows_.log(replica_, c).put_loose(env));
            });
        }
    }
    if (row == kNone) row = take();
    each_pair([&](std::size_t c, const Column& column, std::size_t source) {
        const char* led_to = sources[source] + place * column.bytes;
        if (column.compressed)
            rows_.set_ref(replica_, row, c, rows_.log(replica_, c).set_loose(env, led_to));
        else
            std::memcpy(rows_.row(replica_, row) + column.offset, led_to,
                        static_cast<std::size_t>(column.bytes));
    });
    owners_[static_cast<std::size_t>(row - rows_.closing_row())] = static_cast<std::uint32_t>(env);
    next_[static_cast<std::size_t>(slot)] = static_cast<std::uint32_t>(row);
    newest = slot;
}

void NextRows::dropped(std::int64_t slot) {
    // A row of the ring needs nothing: it belongs to a younger step and outlives this one.
    const std::uint32_t row = next_[static_cast<std::size_t>(slot)];
    if (row < rows_.closing_row()) return;
    each_pair([&](std::size_t c, const Column& column, std::size_t) {
        if (!column.compressed) return;
        rows_.log(replica_, c).release(rows_.ref(replica_, row, c));
        rows_.set_ref(replica_, row, c, 0);
    });
    free_.push_back(row);
    std::int64_t& newest =
        newest_[owners_[static_cast<std::size_t>(row - static_cast<std::uint32_t>(rows_.closing_row()))]];
    if (newest == slot) newest = kNone;
}

void NextRows::write(std::int64_t slot, const char* const* sources, std::int64_t place) {
    const std::int64_t next = row(slot);
    each_pair([&](std::size_t c, const Column& column, std::size_t source) {
        if (sources[source] == nullptr) return;
        const char* value = sources[source] + place * column.bytes;
        if (!column.compressed) {
            std::memcpy(rows_.row(replica_, next) + column.offset, value,
                        static_cast<std::size_t>(column.bytes));
            return;
        }
        PackedLog& log = rows_.log(replica_, c);
        const PackedLog::Ref old = rows_.ref(replica_, next, c);
        const auto number = static_cast<std::int64_t>(old & ~PackedLog::kLoose);
        const bool loose = (old & PackedLog::kLoose) != 0;
        rows_.set_ref(replica_, next, c, loose ? log.set_loose(number, value) : log.put(value));
        log.release(old);
    });
}

void NextRows::visit(StateVisitor& state) {
    const auto stride = static_cast<std::size_t>(rows_.stride());
    const std::size_t words = (stride + 7) / 8;
    std::vector<std::int64_t> contents(static_cast<std::size_t>(used_) * words);
    for (std::int64_t k = 0; k < used_; ++k)
        std::memcpy(contents.data() + static_cast<std::size_t>(k) * words,
                    rows_.row(replica_, rows_.closing_row() + k), stride);
    if (state.restoring()) free_.clear(), owners_.clear(), contents.clear();  // of any length
    state.visit("next_rows", next_);
    state.visit("newest_steps", newest_);
    state.visit("free_rows", free_);
    state.visit("row_owners", owners_);
    state.visit("closing_rows", contents);
    if (!state.restoring()) return;
    state.must(owners_.size() <= static_cast<std::size_t>(rows_.rows() - rows_.closing_row()), "row_owners");
    used_ = static_cast<std::int64_t>(owners_.size());
    state.must(contents.size() == owners_.size() * words, "closing_rows");
    for (std::int64_t k = 0; k < used_; ++k)
        std::memcpy(rows_.row(replica_, rows_.closing_row() + k),
                    contents.data() + static_cast<std::size_t>(k) * words, stride);
}

bool NextRows::fits(std::int64_t stored) const {
    const std::int64_t closing = rows_.closing_row(), end = closing + used_;
    std::vector<bool> taken(static_cast<std::size_t>(used_), false);  // each by one step, or by none
    const auto take = [&](std::int64_t row) {
        if (row < closing || row >= end || taken[static_cast<std::size_t>(row - closing)]) return false;
        taken[static_cast<std::size_t>(row - closing)] = true;
        return true;
    };
    for (const std::uint32_t row : free_)
        if (!take(row)) return false;
    for (std::int64_t slot = 0; slot < stored; ++slot)
        if (row(slot) >= stored && !take(row(slot))) return false;
    for (const std::uint32_t env : owners_)
        if (env >= newest_.size()) return false;
    for (std::size_t env = 0; env < newest_.size(); ++env) {
        const std::int64_t slot = newest_[env];
        if (slot == kNone) continue;
        if (slot < 0 || slot >= stored || row(slot) < closing) return false;
        if (owners_[static_cast<std::size_t>(row(slot) - closing)] != env) return false;
        for (std::size_t c = 0; c < pairs_.size(); ++c)
            if (pairs_[c] >= 0 && rows_.columns()[c].compressed &&
                !rows_.log(replica_, c).has_loose(static_cast<std::int64_t>(env)))
                return false;
    }
    return true;
}

}  // namespace replaylab
