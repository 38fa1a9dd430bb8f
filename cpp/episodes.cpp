#include "episodes.hpp"

#include <limits>

#include "ring.hpp"

namespace replaylab {

void Episodes::stored(std::int64_t slot, std::int64_t env, bool ended) {
    Line& line = lines_[static_cast<std::size_t>(env)];
    if (line.steps == std::numeric_limits<std::uint32_t>::max()) cut(env);
    if (line.current == kNone) {
        line.current = first_ + static_cast<std::int64_t>(live_.size());
        live_.push_back(Episode{line.end - line.steps, line.steps, 0, env});
    }
    const auto number = static_cast<std::uint32_t>(line.current);
    Episode& episode = at(number);
    marks_[static_cast<std::size_t>(slot)] = Mark{number, static_cast<std::uint32_t>(episode.length)};
    ++episode.length;
    ++episode.left;
    ++line.steps;
    if (lines_.size() > 1) {
        const auto held = static_cast<std::size_t>(line.end - line.front);
        if (held == line.slots.size()) {  // grow to the next power of two, each place keeping its step
            std::vector<std::uint32_t> larger(std::max<std::size_t>(8, 2 * held));
            for (std::int64_t place = line.front; place < line.end; ++place)
                larger[static_cast<std::size_t>(place) & (larger.size() - 1)] =
                    line.slots[static_cast<std::size_t>(place) & (held - 1)];
            line.slots = std::move(larger);
        }
        line.slots[static_cast<std::size_t>(line.end) & (line.slots.size() - 1)] =
            static_cast<std::uint32_t>(slot);
    }
    ++line.end;
    if (ended) cut(env);
}

void Episodes::dropped(std::int64_t slot) {
    const std::uint32_t number = this->number(slot);
    Episode& episode = at(number);
    Line& line = lines_[static_cast<std::size_t>(episode.env)];
    ++line.front;
    if (--episode.left > 0) return;
    // An episode that goes on gets a new record with its next step, which keeps counting from line.steps.
    if (line.current != kNone && static_cast<std::uint32_t>(line.current) == number) line.current = kNone;
    forget();
}

void Episodes::cut(std::int64_t env) {
    Line& line = lines_[static_cast<std::size_t>(env)];
    line.current = kNone;
    line.steps = 0;
}

// Drops the oldest records that hold no stored step.
void Episodes::forget() {
    while (!live_.empty() && live_.front().left == 0) {
        live_.pop_front();
        ++first_;
    }
}

void Episodes::visit(StateVisitor& state) {
    std::vector<std::int64_t> episodes{first_}, lines;
    std::vector<std::uint32_t> episode_of, step_of, slots;
    for (const Mark mark : marks_) {
        episode_of.push_back(mark.episode);
        step_of.push_back(mark.step);
    }
    for (const Episode& one : live_)
        episodes.insert(episodes.end(), {one.first, one.length, one.left, one.env});
    for (const Line& line : lines_) {
        const auto size = static_cast<std::int64_t>(line.slots.size());
        lines.insert(lines.end(), {line.front, line.end, line.current, line.steps, size});
        slots.insert(slots.end(), line.slots.begin(), line.slots.end());
    }
    if (state.restoring()) episodes.clear(), slots.clear();  // of any length
    state.visit("episode_of", episode_of);
    state.visit("step_of", step_of);
    state.visit("episodes", episodes);
    state.visit("lines", lines);
    state.visit("line_slots", slots);
    if (!state.restoring()) return;
    for (std::size_t slot = 0; slot < marks_.size(); ++slot)
        marks_[slot] = Mark{episode_of[slot], step_of[slot]};
    first_ = episodes.at(0);
    live_.clear();
    for (std::size_t k = 1; k + 3 < episodes.size(); k += 4)
        live_.push_back(Episode{episodes[k], episodes[k + 1], episodes[k + 2], episodes[k + 3]});
    state.must(first_ >= 0 && first_ <= StateVisitor::kMost && episodes.size() % 4 == 1, "episodes");
    auto from = slots.begin();
    for (std::size_t e = 0; e < lines_.size(); ++e) {
        const std::int64_t* one = &lines.at(5 * e);
        const std::int64_t size = one[4];  // none, or a power of two
        state.must(size >= 0 && size <= slots.end() - from && (size & (size - 1)) == 0, "lines");
        lines_[e] = Line{{}, one[0], one[1], one[2], one[3]};
        lines_[e].slots.assign(from, from + size);
        from += size;
    }
}

bool Episodes::fits(const Ring& ring) const {
    const auto within = [](std::int64_t n, std::int64_t least, std::int64_t most) {
        return n >= least && n <= most;
    };
    constexpr std::int64_t kMost = StateVisitor::kMost, kSteps = std::numeric_limits<std::uint32_t>::max();
    for (const Episode& one : live_)
        if (!within(one.env, 0, static_cast<std::int64_t>(lines_.size()) - 1) ||
            !within(one.length, 0, kSteps) || !within(one.left, 0, one.length) ||
            !within(one.first, -kSteps, kMost))
            return false;
    std::vector<std::int64_t> places, left(live_.size(), 0);  // by environment; by record
    for (std::size_t e = 0; e < lines_.size(); ++e) {
        const Line& line = lines_[e];
        const auto room = static_cast<std::int64_t>(line.slots.size());
        if (!within(line.front, 0, kMost) || !within(line.end, line.front, kMost) ||
            !within(line.steps, 0, kSteps) || (lines_.size() > 1 && line.end - line.front > room))
            return false;
        places.push_back(line.front);
        if (line.current == kNone) continue;
        if (!within(line.current, first_, first_ + static_cast<std::int64_t>(live_.size()) - 1)) return false;
        const Episode& open = live_[static_cast<std::size_t>(line.current - first_)];
        if (open.env != static_cast<std::int64_t>(e) || open.first + open.length != line.end ||
            open.length != line.steps)
            return false;
    }
    // Oldest first, each step is the next place of its environment's line.
    for (std::int64_t age = ring.size() - 1; age >= 0; --age) {
        const std::int64_t slot = ring.slot_of_age(age);
        const Mark mark = marks_[static_cast<std::size_t>(slot)];
        const std::uint32_t index = mark.episode - static_cast<std::uint32_t>(first_);
        if (index >= live_.size()) return false;
        const Episode& episode = live_[index];
        const Line& line = lines_[static_cast<std::size_t>(episode.env)];
        const std::int64_t place = places[static_cast<std::size_t>(episode.env)]++;
        if (mark.step >= episode.length || episode.first + mark.step != place || place >= line.end)
            return false;
        const std::size_t mask = line.slots.size() - 1;
        if (lines_.size() > 1 && line.slots[static_cast<std::size_t>(place) & mask] != slot) return false;
        ++left[index];
    }
    for (std::size_t e = 0; e < lines_.size(); ++e)
        if (places[e] != lines_[e].end) return false;
    for (std::size_t i = 0; i < live_.size(); ++i)
        if (left[i] != live_[i].left) return false;
    return true;
}

}  // namespace replaylab
