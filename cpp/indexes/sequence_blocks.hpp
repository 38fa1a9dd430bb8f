// Sequence blocks as samplers see them. Where sequences are drawn, a row is the whole block of the step that
// was drawn, so samplers that promise different rows draw blocks: each by its newest stored step, which
// stands for it. Where steps are drawn alone, each stands for itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "storage/episodes.hpp"
#include "storage/ring.hpp"

namespace replaylab {

// The slot of the step that stands for the row this slot's step would give.
inline std::int64_t last_of_block(const Ring& ring, std::int64_t slot) {
    if (!ring.in_blocks()) return slot;
    const Episodes::Span span = ring.episodes()->span(slot);
    const std::int64_t last = span.step / ring.stride() * ring.stride() + ring.stride() - 1;
    return ring.episodes()->slot(span, std::min(span.high, last));
}

inline bool stands_for_row(const Ring& ring, std::int64_t slot) {
    return ring.shows(slot) && last_of_block(ring, slot) == slot;
}

// Appends the slots of the steps of this slot's row: its block, oldest first, or itself.
inline void push_row(const Ring& ring, std::int64_t slot, std::vector<std::int64_t>& slots) {
    if (!ring.in_blocks()) return slots.push_back(slot);
    const Episodes::Span span = ring.episodes()->span(slot);
    const std::int64_t start = span.step / ring.stride() * ring.stride(), first = std::max(start, span.low);
    const std::int64_t n = std::min(span.high + 1, start + ring.stride()) - first;
    slots.resize(slots.size() + static_cast<std::size_t>(n));
    ring.episodes()->slots(span, first, n, slots.data() + slots.size() - n);
}

// Calls function(slot) for the stored steps of a block, oldest first.
template <typename Function>
void for_block(const Ring& ring, std::int64_t slot, const Function& function) {
    const Episodes::Span span = ring.episodes()->span(slot);
    const std::int64_t start = span.step / ring.stride() * ring.stride();
    const std::int64_t end = std::min(span.high + 1, start + ring.stride());
    for (std::int64_t step = std::max(start, span.low); step < end; ++step)
        function(ring.episodes()->slot(span, step));
}

// The slot of a block's oldest stored step.
inline std::int64_t first_of_block(const Ring& ring, std::int64_t slot) {
    const Episodes::Span span = ring.episodes()->span(slot);
    return ring.episodes()->slot(span, std::max(span.step / ring.stride() * ring.stride(), span.low));
}

// How many different rows there are.
inline std::int64_t count_rows(const Ring& ring) {
    if (!ring.in_blocks()) return ring.size();
    std::int64_t rows = 0;
    for (std::int64_t slot = 0; slot < ring.used(); ++slot) rows += stands_for_row(ring, slot);
    return rows;
}

}  // namespace replaylab
