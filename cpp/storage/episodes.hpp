// Which stored steps belong to one episode of one environment, and in what order: what transforms need to
// look ahead and back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "support/arena.hpp"
#include "support/prefetch.hpp"
#include "support/state.hpp"

namespace replaylab {

class Ring;

class Episodes {
  public:
    // The stored part of an episode, seen from one of its steps.
    struct Span {
        // Its oldest and newest stored steps, without a removed one between; step 0 began the episode.
        std::int64_t low, high;
        std::int64_t step;   // the step it is seen from
        std::int64_t slot;   // and where that lies
        std::int64_t place;  // and its place in its environment's line
        std::int64_t env;
    };

    Episodes(std::int64_t capacity, std::int64_t num_envs)
        : capacity_(capacity),
          marks_(zeros_by_slot<Mark>(capacity)),
          lines_(static_cast<std::size_t>(num_envs)) {}

    // A step of this environment now lies in this slot; what lay there was dropped before.
    void stored(std::int64_t slot, std::int64_t env, bool ended);

    // The oldest step, in this slot, is about to be overwritten.
    void dropped(std::int64_t slot);

    // The step in this slot is removed: neither those before nor those after it see across.
    void removed(std::int64_t slot);

    // The environment's next step is this one of its episode: where steps are missing, it follows none.
    void resume(std::int64_t env, std::int64_t step) {
        Line& line = lines_[static_cast<std::size_t>(env)];
        if (line.steps == step) return;
        end_episode(env);
        line.steps = step;
    }

    // The environment starts again: its next step follows none.
    void end_episode(std::int64_t env);

    // The slot of the newest step of the environment's episode under way; −1 if none of its steps is stored.
    std::int64_t newest_open(std::int64_t env, const Ring& ring) const;

    // Whether the environment's next step is this one of its episode.
    bool follows(std::int64_t env, std::int64_t step) const {
        return lines_[static_cast<std::size_t>(env)].steps == step;
    }

    // Whether the environment's next step is an episode's first.
    bool begins(std::int64_t env) const { return lines_[static_cast<std::size_t>(env)].steps == 0; }

    Span span(std::int64_t slot) const {
        Span span = whole(slot);
        const Line& line = lines_[static_cast<std::size_t>(span.env)];
        if (line.removed) narrow(span, *line.removed);
        return span;
    }

    // The same across removed steps.
    Span whole(std::int64_t slot) const {
        const Mark mark = marks_[static_cast<std::size_t>(slot)];
        const Episode& episode = records_[mark.episode];
        const std::int64_t step = mark.step;
        const Line& line = lines_[static_cast<std::size_t>(episode.env)];
        return Span{std::max<std::int64_t>(0, line.front - episode.first),
                    episode.length - 1,
                    step,
                    slot,
                    episode.first + step,
                    episode.env};
    }

    // The slot of a step of the span, low ≤ step ≤ high.
    std::int64_t slot(const Span& span, std::int64_t step) const {
        const std::int64_t ahead = step - span.step;
        if (lines_.size() == 1) {  // one environment: its steps lie side by side
            const std::int64_t slot = span.slot + ahead;
            return slot < 0 ? slot + capacity_ : slot >= capacity_ ? slot - capacity_ : slot;
        }
        const Line& line = lines_[static_cast<std::size_t>(span.env)];
        return line.slots[static_cast<std::size_t>(span.place + ahead) & (line.slots.size() - 1)];
    }

    // The slots of n steps of the span, from this one on.
    void slots(const Span& span, std::int64_t step, std::int64_t n, std::int64_t* out) const {
        if (n > 0 && lines_.size() == 1) {
            const std::int64_t first = slot(span, step), before_wrap = std::min(n, capacity_ - first);
            std::iota(out, out + before_wrap, first);
            std::iota(out + before_wrap, out + n, 0);
        } else {
            for (std::int64_t k = 0; k < n; ++k) out[k] = slot(span, step + k);
        }
    }

    // Asks for what span() will read.
    void expect(std::int64_t slot) const { prefetch(&marks_[static_cast<std::size_t>(slot)]); }

    // Bytes of records and lines taken so far.
    std::int64_t grown_nbytes() const {
        std::int64_t removed = 0;
        for (const Line& line : lines_)
            removed += line.removed ? static_cast<std::int64_t>(line.removed->size()) : 0;
        return static_cast<std::int64_t>(records_.size() * sizeof(Episode)) + 4 * places_ +
               kRemoved * removed;
    }

    void visit(StateVisitor& state);

    // Whether what was restored tells, of each stored step of this ring, where it lies in its episode.
    bool fits(const Ring& ring) const;

    // Bytes taken at once; and what may come on top, where every step is its own episode and the lines
    // of several environments hold four places a step, as much as they ever do.
    static std::int64_t nbytes(std::int64_t capacity) { return 8 * capacity; }
    static std::int64_t grown_nbytes(std::int64_t capacity, std::int64_t num_envs) {
        return 32 * capacity + (num_envs > 1 ? 16 * capacity + 4 * kShortest * num_envs : 0);
    }

  private:
    static constexpr std::int64_t kNone = -1;
    static constexpr std::int64_t kShortest = 8;  // places of a line that has any
    static constexpr std::int64_t kRemoved = 48;  // bytes of an entry of a set, about

    struct Mark {
        std::uint32_t episode;  // the number of its record
        std::uint32_t step;     // and the step in it
    };
    struct Episode {
        std::int64_t first;   // place of its step 0 in the environment's line; unused: the next unused one
        std::int64_t length;  // steps so far
        std::int64_t left;    // of them still stored; 0: the record is unused
        std::int64_t env;
    };
    // One environment's steps in order: places front .. end − 1 are stored, at slots[place mod size].
    struct Line {
        std::vector<std::uint32_t> slots;
        std::int64_t front = 0, end = 0;
        std::int64_t current = kNone;                     // record of the episode a next step belongs to
        std::int64_t steps = 0;                           // that episode's steps so far
        std::unique_ptr<std::set<std::int64_t>> removed;  // places of removed steps; null: none
    };

    static void narrow(Span& span, const std::set<std::int64_t>& removed);
    std::int64_t take(const Episode& episode);
    void give_back(std::int64_t number);
    bool free_list_fits() const;
    void resize(Line& line, std::size_t size);
    void restore(const StateVisitor& state, const std::vector<std::uint32_t>& episode_of,
                 const std::vector<std::uint32_t>& step_of, const std::vector<std::int64_t>& episodes,
                 const std::vector<std::int64_t>& lines, const std::vector<std::uint32_t>& slots);

    std::int64_t capacity_;
    std::vector<Mark> marks_;      // by slot
    std::vector<Line> lines_;      // by environment
    std::deque<Episode> records_;  // by number; a record is used again when no step of its episode is stored
    std::int64_t free_ = kNone;    // the first unused record
    std::int64_t unused_ = 0;
    std::int64_t places_ = 0;  // of all lines
};

}  // namespace replaylab
