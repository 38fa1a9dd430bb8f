#include "next_rows.hpp"

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

void NextRows::stored(std::int64_t slot, std::int64_t env, const char* const* sources,
                      const char* const* columns, std::int64_t place) {
    std::int64_t& newest = newest_[static_cast<std::size_t>(env)];
    std::int64_t row = kNone;
    if (newest != kNone) {  // does this step begin where that one led to?
        std::uint32_t& next = next_[static_cast<std::size_t>(newest)];
        const char* led_to = rows_.row(replica_, next);
        bool same = true;
        for (std::size_t c = 0; c < pairs_.size() && same; ++c) {
            const Column& column = rows_.columns()[c];
            if (pairs_[c] >= 0)
                same = std::memcmp(columns[c] + place * column.bytes, led_to + column.offset,
                                   static_cast<std::size_t>(column.bytes)) == 0;
        }
        if (same) {
            row = next;
            next = static_cast<std::uint32_t>(slot);
        }
    }
    if (row == kNone) row = take();
    for (std::size_t c = 0; c < pairs_.size(); ++c) {
        const Column& column = rows_.columns()[c];
        if (pairs_[c] >= 0)
            std::memcpy(rows_.row(replica_, row) + column.offset, sources[pairs_[c]] + place * column.bytes,
                        static_cast<std::size_t>(column.bytes));
    }
    owners_[static_cast<std::size_t>(row - rows_.closing_row())] = static_cast<std::uint32_t>(env);
    next_[static_cast<std::size_t>(slot)] = static_cast<std::uint32_t>(row);
    newest = slot;
}

void NextRows::dropped(std::int64_t slot) {
    const std::uint32_t row = next_[static_cast<std::size_t>(slot)];
    if (row < rows_.closing_row()) return;
    free_.push_back(row);
    std::int64_t& newest =
        newest_[owners_[static_cast<std::size_t>(row - static_cast<std::uint32_t>(rows_.closing_row()))]];
    if (newest == slot) newest = kNone;
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
    used_ = static_cast<std::int64_t>(owners_.size());
    for (std::int64_t k = 0; k < used_; ++k)
        std::memcpy(rows_.row(replica_, rows_.closing_row() + k),
                    contents.data() + static_cast<std::size_t>(k) * words, stride);
}

}  // namespace replaylab
