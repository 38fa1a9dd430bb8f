#include "storage/episodes.hpp"

#include <iterator>
#include <limits>

#include "storage/ring.hpp"
#include "support/error.hpp"

namespace replaylab {

std::int64_t Episodes::take(const Episode& episode) {
    if (free_ == kNone) {
        records_.push_back(episode);
        return static_cast<std::int64_t>(records_.size()) - 1;
    }
    const std::int64_t number = free_;
    Episode& record = records_[static_cast<std::size_t>(number)];
    free_ = record.first;
    --unused_;
    record = episode;
    return number;
}

void Episodes::give_back(std::int64_t number) {
    records_[static_cast<std::size_t>(number)] = Episode{free_, 0, 0, 0};
    free_ = number;
    ++unused_;
}

// Makes room for another number of places, a power of two; each keeps its step.
void Episodes::resize(Line& line, std::size_t size) {
    std::vector<std::uint32_t> other(size);
    for (std::int64_t place = line.front; place < line.end; ++place)
        other[static_cast<std::size_t>(place) & (size - 1)] =
            line.slots[static_cast<std::size_t>(place) & (line.slots.size() - 1)];
    places_ += static_cast<std::int64_t>(size) - static_cast<std::int64_t>(line.slots.size());
    line.slots = std::move(other);
}

// A step's mark names its episode's record and its place in the episode; the record says where in the
// environment's line the episode began; the line says in which slot each place lies. So any neighbour of a
// step is found in O(1), and what is overwritten is forgotten by moving the line's front: no mark is ever
// changed.
void Episodes::stored(std::int64_t slot, std::int64_t env, bool ended) {
    Line& line = lines_[static_cast<std::size_t>(env)];
    if (line.steps == std::numeric_limits<std::uint32_t>::max()) end_episode(env);
    // All that was stored of an episode under way may have been overwritten, and its record with it: its next
    // step gets a new one, whose step 0 lies line.steps places before, so that steps keep their numbers.
    if (line.current == kNone) line.current = take(Episode{line.end - line.steps, line.steps, 0, env});
    Episode& episode = records_[static_cast<std::size_t>(line.current)];
    marks_[static_cast<std::size_t>(slot)] =
        Mark{static_cast<std::uint32_t>(line.current), static_cast<std::uint32_t>(episode.length)};
    ++episode.length;
    ++episode.left;
    ++line.steps;
    if (lines_.size() > 1) {
        const auto held = static_cast<std::size_t>(line.end - line.front);
        if (held == line.slots.size()) resize(line, std::max(static_cast<std::size_t>(kShortest), 2 * held));
        line.slots[static_cast<std::size_t>(line.end) & (line.slots.size() - 1)] =
            static_cast<std::uint32_t>(slot);
    }
    ++line.end;
    if (ended) end_episode(env);
}

void Episodes::dropped(std::int64_t slot) {
    const std::uint32_t number = marks_[static_cast<std::size_t>(slot)].episode;
    Episode& episode = records_[number];
    Line& line = lines_[static_cast<std::size_t>(episode.env)];
    ++line.front;
    if (line.removed) {
        line.removed->erase(line.removed->begin(), line.removed->lower_bound(line.front));
        if (line.removed->empty()) line.removed.reset();
    }
    // A line that was long, of an environment that gives few steps now, must not keep its places.
    if (line.slots.size() > static_cast<std::size_t>(kShortest) &&
        static_cast<std::size_t>(line.end - line.front) <= line.slots.size() / 4)
        resize(line, line.slots.size() / 2);
    if (--episode.left > 0) return;
    // An episode that continues gets a new record with its next step, which keeps counting from line.steps.
    if (line.current == number) line.current = kNone;
    give_back(number);
}

void Episodes::removed(std::int64_t slot) {
    const Span at = span(slot);
    std::unique_ptr<std::set<std::int64_t>>& removed = lines_[static_cast<std::size_t>(at.env)].removed;
    if (!removed) removed = std::make_unique<std::set<std::int64_t>>();
    removed->insert(at.place);
}

// Of a removed step too: then it is the only one of these that is.
void Episodes::narrow(Span& span, const std::set<std::int64_t>& removed) {
    const std::int64_t first = span.place - span.step;
    const auto after = removed.upper_bound(span.place), at = removed.lower_bound(span.place);
    if (after != removed.end()) span.high = std::min(span.high, *after - 1 - first);
    if (at != removed.begin()) span.low = std::max(span.low, *std::prev(at) + 1 - first);
}

std::int64_t Episodes::newest_open(std::int64_t env, const Ring& ring) const {
    const Line& line = lines_[static_cast<std::size_t>(env)];
    if (line.current == kNone) return kNone;
    if (lines_.size() == 1) return ring.slot_in_use(0);
    return line.slots[static_cast<std::size_t>(line.end - 1) & (line.slots.size() - 1)];
}

void Episodes::end_episode(std::int64_t env) {
    Line& line = lines_[static_cast<std::size_t>(env)];
    line.current = kNone;
    line.steps = 0;
}

// What is saved begins with the number that the first record has in the marks, which earlier versions counted
// up for ever, and ends with the first unused record, of which those had no list.
void Episodes::visit(StateVisitor& state) {
    std::vector<std::int64_t> episodes{0}, lines;
    std::vector<std::uint32_t> episode_of, step_of, slots;
    for (const Mark mark : marks_) {
        episode_of.push_back(mark.episode);
        step_of.push_back(mark.step);
    }
    for (const Episode& one : records_)
        episodes.insert(episodes.end(), {one.first, one.length, one.left, one.env});
    episodes.push_back(free_);
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
    if (state.restoring()) restore(state, episode_of, step_of, episodes, lines, slots);
}

void Episodes::restore(const StateVisitor& state, const std::vector<std::uint32_t>& episode_of,
                       const std::vector<std::uint32_t>& step_of, const std::vector<std::int64_t>& episodes,
                       const std::vector<std::int64_t>& lines, const std::vector<std::uint32_t>& slots) {
    state.must(episodes.size() % 4 == 1 || episodes.size() % 4 == 2, "episodes");
    const std::int64_t first = episodes.at(0);
    state.must(first >= 0 && first <= StateVisitor::kMost, "episodes");
    for (std::size_t slot = 0; slot < marks_.size(); ++slot)
        marks_[slot] = Mark{episode_of[slot] - static_cast<std::uint32_t>(first), step_of[slot]};
    records_.clear();
    unused_ = places_ = 0;
    free_ = kNone;
    for (std::size_t k = 1; k + 3 < episodes.size(); k += 4) {
        records_.push_back(Episode{episodes[k], episodes[k + 1], episodes[k + 2], episodes[k + 3]});
        unused_ += records_.back().left == 0;
    }
    if (episodes.size() % 4 == 2) {
        free_ = episodes.back();
    } else {
        unused_ = 0;
        for (std::size_t number = 0; number < records_.size(); ++number)
            if (records_[number].left == 0) give_back(static_cast<std::int64_t>(number));
    }
    auto from = slots.begin();
    for (std::size_t e = 0; e < lines_.size(); ++e) {
        const std::int64_t* one = &lines.at(5 * e);
        const std::int64_t size = one[4];  // none, or a power of two
        state.must(size >= 0 && size <= slots.end() - from && (size & (size - 1)) == 0, "lines");
        state.must(one[2] == kNone || (one[2] >= first && one[2] <= StateVisitor::kMost), "lines");
        lines_[e] = Line{{}, one[0], one[1], one[2] == kNone ? kNone : one[2] - first, one[3], nullptr};
        lines_[e].slots.assign(from, from + size);
        places_ += size;
        from += size;
    }
}

// Whether the list of unused records holds each of them once.
bool Episodes::free_list_fits() const {
    std::int64_t found = 0;
    for (std::int64_t number = free_; number != kNone; ++found) {
        if (number < 0 || number >= static_cast<std::int64_t>(records_.size()) || found >= unused_)
            return false;
        const Episode& record = records_[static_cast<std::size_t>(number)];
        if (record.left != 0) return false;
        number = record.first;
    }
    return found == unused_;
}

bool Episodes::fits(const Ring& ring) const {
    const auto within = [](std::int64_t n, std::int64_t least, std::int64_t most) {
        return n >= least && n <= most;
    };
    constexpr std::int64_t kMost = StateVisitor::kMost, kSteps = std::numeric_limits<std::uint32_t>::max();
    if (!free_list_fits()) return false;
    for (const Episode& one : records_)
        if (one.left != 0 && (!within(one.env, 0, static_cast<std::int64_t>(lines_.size()) - 1) ||
                              !within(one.length, 0, kSteps) || !within(one.left, 0, one.length) ||
                              !within(one.first, -kSteps, kMost)))
            return false;
    std::vector<std::int64_t> places, left(records_.size(), 0);  // by environment; by record
    for (std::size_t e = 0; e < lines_.size(); ++e) {
        const Line& line = lines_[e];
        const auto room = static_cast<std::int64_t>(line.slots.size());
        if (!within(line.front, 0, kMost) || !within(line.end, line.front, kMost) ||
            !within(line.steps, 0, kSteps) || (lines_.size() > 1 && line.end - line.front > room))
            return false;
        places.push_back(line.front);
        if (line.current == kNone) continue;
        if (!within(line.current, 0, static_cast<std::int64_t>(records_.size()) - 1)) return false;
        const Episode& open = records_[static_cast<std::size_t>(line.current)];
        if (open.left == 0 || open.env != static_cast<std::int64_t>(e) ||
            open.first + open.length != line.end || open.length != line.steps)
            return false;
    }
    // Oldest first, each step is the next place of its environment's line.
    for (std::int64_t age = ring.used() - 1; age >= 0; --age) {
        const std::int64_t slot = ring.slot_in_use(age);
        const Mark mark = marks_[static_cast<std::size_t>(slot)];
        if (mark.episode >= records_.size()) return false;
        const Episode& episode = records_[mark.episode];
        if (episode.left == 0) return false;
        const Line& line = lines_[static_cast<std::size_t>(episode.env)];
        const std::int64_t place = places[static_cast<std::size_t>(episode.env)]++;
        if (mark.step >= episode.length || episode.first + mark.step != place || place >= line.end)
            return false;
        const std::size_t mask = line.slots.size() - 1;
        if (lines_.size() > 1 && line.slots[static_cast<std::size_t>(place) & mask] != slot) return false;
        ++left[mark.episode];
    }
    for (std::size_t e = 0; e < lines_.size(); ++e)
        if (places[e] != lines_[e].end) return false;
    for (std::size_t i = 0; i < records_.size(); ++i)
        if (left[i] != records_[i].left) return false;
    return true;
}

}  // namespace replaylab
