#include "replay/assembly.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "support/prefetch.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kAhead = 16;
constexpr std::int64_t kCached =
    1 << 18;  // bytes of stacks that stay in the cache while they are put together

}  // namespace

bool is_next_obs(const std::string& field) { return field == "next_obs" || field.rfind("next_obs.", 0) == 0; }

Assembly::Assembly(const TransformConfig& config, std::vector<Shown> shown, const RowStore& rows)
    : config_(config), shown_(std::move(shown)), rows_(rows) {
    for (std::size_t field = 0; field < shown_.size(); ++field) {
        const std::string& name = rows.columns()[static_cast<std::size_t>(shown_[field].column)].name;
        if (name == "reward") reward_ = static_cast<std::int64_t>(field);
        if (name == "terminated") terminated_ = static_cast<std::int64_t>(field);
    }
    for (std::size_t field = 0; field < shown_.size() && inner(); ++field) {
        Shown& one = shown_[field];
        const std::string& name = rows.columns()[static_cast<std::size_t>(one.column)].name;
        const bool obs = name == "obs" || name.rfind("obs.", 0) == 0;
        one.of_last = one.of_last || (!obs && one.before < 0 && !one.state);
    }
    for (std::size_t field = 0; field < shown_.size(); ++field) {
        const Shown& one = shown_[field];
        const bool summed = config_.n_step > 0 && !inner() && static_cast<std::int64_t>(field) == reward_;
        if (one.before >= 0 || one.state || summed) continue;
        const bool last = config_.n_step > 0 && one.of_last;  // without n-step returns the last is the first
        Group& group = one.of_next ? next_group_ : last ? last_group_ : own_group_;
        group.fields.push_back(field);
        group.part.cover(rows.columns()[static_cast<std::size_t>(one.column)]);
    }
}

std::vector<std::int64_t> Assembly::axes(std::size_t field) const {
    std::vector<std::int64_t> axes;
    if (config_.length > 0 && !shown_[field].state) axes.push_back(steps());
    if (inner() && shown_[field].of_last) axes.push_back(config_.n_step);
    if (shown_[field].before >= 0) axes.push_back(config_.frames);
    return axes;
}

void Assembly::gather(const Source& source, const std::int64_t* slots, std::int64_t n, std::int64_t from,
                      char* const* targets, const ExtraTargets& extra) {
    // First which rows each drawn step is put together from (own_: what it shows itself; last_: the end of
    // its n steps; next_: where its next_obs lies), then all copies of one kind in one call of gather, whose
    // prefetching works best on long lists.
    rows_.begin_turn();
    find_own(source, slots, n);
    const std::int64_t first = from * steps();
    if (config_.n_step > 0) follow(source, first, targets, extra);
    if (config_.strategy != Strategy::none) draw_goals(source, slots, n, extra.relabelled + from);
    if (source.next_rows != nullptr) {
        next_.clear();
        for (const std::int64_t row : config_.n_step > 0 ? last_ : own_)
            next_.push_back(row == rows_.zero_row() ? row : source.next_rows->row(row));
    }
    copy_all(source, own_group_, own_, first, targets);
    if (config_.n_step > 0) copy_all(source, last_group_, last_, first * inner_steps(), targets);
    if (source.next_rows != nullptr) copy_all(source, next_group_, next_, first * inner_steps(), targets);
    if (config_.frames > 0) stack_all(source, n, first, targets);
    for (std::size_t field = 0; field < shown_.size(); ++field)
        if (shown_[field].state) show_state(source, shown_[field], n, from, targets[field]);
    if (extra.mask != nullptr)
        for (std::size_t i = 0; i < own_.size(); ++i)
            extra.mask[first + static_cast<std::int64_t>(i)] = own_[i] != rows_.zero_row();
    if (config_.strategy != Strategy::none) relabel(source, n, from, targets);
}

Assembly::Position Assembly::at(const Source& source, const Episodes::Span& span, std::int64_t step) const {
    Position position{span, step >= span.low && step <= span.high};
    if (!position.stored) return position;
    position.span.slot = source.episodes->slot(span, step);
    position.span.place += step - span.step;
    position.span.step = step;
    return position;
}

std::int64_t Assembly::row_of(const Source& source, const Shown& field, std::int64_t slot) const {
    return field.of_next ? source.next_rows->row(slot) : slot;
}

std::int64_t Assembly::row_of(const Position& position) const {
    return position.stored ? position.span.slot : rows_.zero_row();
}

// The steps that the drawn rows show: themselves, or the sequences of their blocks.
void Assembly::find_own(const Source& source, const std::int64_t* slots, std::int64_t n) {
    if (!config_.looks_around()) return own_.assign(slots, slots + n);
    // Where no other transform looks around from the steps of a sequence, their rows are all that is needed.
    const bool rows_alone = config_.n_step == 0 && config_.frames == 0 && config_.strategy == Strategy::none;
    positions_.resize(config_.length == 0 ? static_cast<std::size_t>(n) : 0);
    own_.assign(static_cast<std::size_t>(n * steps()), rows_.zero_row());
    std::int64_t* own = own_.data();
    for (std::int64_t k = 0; k < n; ++k, own += steps()) {
        if (k + kAhead < n) source.episodes->expect(slots[k + kAhead]);
        if (config_.length == 0) {
            positions_[static_cast<std::size_t>(k)].span = source.episodes->span(slots[k]);
            positions_[static_cast<std::size_t>(k)].stored = true;
            *own = slots[k];
            continue;
        }
        const Episodes::Span span = source.episodes->span(slots[k]);
        const std::int64_t start = span.step / config_.stride * config_.stride - config_.burn_in;
        const std::int64_t first = std::max(start, span.low), end = std::min(start + steps(), span.high + 1);
        source.episodes->slots(span, first, end - first, own + (first - start));
        for (std::int64_t step = start; step < start + steps() && !rows_alone; ++step)
            positions_.push_back(at(source, span, step));
    }
}

// Follows each step up to K steps ahead, to its episode's end or the newest step, and puts together one long
// transition: Σ γ^k r, the last step, and the discount: γ^n, or 0 if that one terminated. With inner() all
// the steps on the way are kept as they are instead.
void Assembly::follow(const Source& source, std::int64_t from, char* const* targets,
                      const ExtraTargets& extra) {
    const Column& reward =
        rows_.columns()[static_cast<std::size_t>(shown_[static_cast<std::size_t>(reward_)].column)];
    const Column* terminated = nullptr;  // where only end_episode() ends episodes, none terminates
    if (terminated_ >= 0)
        terminated =
            &rows_.columns()[static_cast<std::size_t>(shown_[static_cast<std::size_t>(terminated_)].column)];
    const auto n = static_cast<std::int64_t>(positions_.size());
    ends_.clear();
    last_.clear();
    // Asks for the rows that step i takes together: the first and the last are copied from later.
    const auto expect = [&](std::int64_t i) {
        if (i >= n || !positions_[static_cast<std::size_t>(i)].stored) return;
        const Episodes::Span& begin = positions_[static_cast<std::size_t>(i)].span;
        const std::int64_t last = std::min(begin.step + config_.n_step - 1, begin.high);
        own_group_.part.expect(rows_.row(source.replica, begin.slot));
        for (std::int64_t step = begin.step; step <= last; ++step)
            prefetch(rows_.row(source.replica, source.episodes->slot(begin, step)) + reward.offset);
        last_group_.part.expect(rows_.row(source.replica, source.episodes->slot(begin, last)));
    };
    for (std::int64_t i = 0; i < kAhead; ++i) expect(i);
    for (std::int64_t i = 0; i < n; ++i) {
        expect(i + kAhead);
        const Position& begin = positions_[static_cast<std::size_t>(i)];
        const std::int64_t ahead = begin.stored ? begin.span.high - begin.span.step + 1 : 0;
        const std::int64_t steps = std::min(config_.n_step, ahead);
        extra.n_steps[from + i] = steps;
        if (inner()) {
            for (std::int64_t j = 0; j < config_.n_step; ++j) {
                ends_.push_back(at(source, begin.span, begin.span.step + j));
                ends_.back().stored &= begin.stored;
                last_.push_back(row_of(ends_.back()));
            }
            continue;
        }
        double sum = 0.0, discount = 1.0;
        std::int64_t row = rows_.zero_row();
        for (std::int64_t j = 0; j < steps; ++j) {
            row = source.episodes->slot(begin.span, begin.span.step + j);
            float value;
            std::memcpy(&value, rows_.row(source.replica, row) + reward.offset, sizeof value);
            sum += discount * static_cast<double>(value);
            discount *= config_.gamma;
        }
        const bool over =
            steps == 0 || (terminated != nullptr && rows_.row(source.replica, row)[terminated->offset] != 0);
        const auto total = static_cast<float>(sum);
        std::memcpy(targets[reward_] + (from + i) * reward.bytes, &total, sizeof total);
        extra.discount[from + i] = over ? 0.0f : static_cast<float>(discount);
        if (config_.frames > 0)
            ends_.push_back(steps == 0 ? begin : at(source, begin.span, begin.span.step + steps - 1));
        last_.push_back(row);
    }
}

// Copies every field of a group: value i of `rows` goes to place from + i.
void Assembly::copy_all(const Source& source, const Group& group, const std::vector<std::int64_t>& rows,
                        std::int64_t from, char* const* targets) {
    targets_.assign(rows_.columns().size(), nullptr);
    for (const std::size_t field : group.fields)
        targets_[static_cast<std::size_t>(shown_[field].column)] = targets[field];
    rows_.gather(source.replica, rows.data(), from, static_cast<std::int64_t>(rows.size()), targets_.data());
}

void Assembly::copy(const Source& source, std::int64_t column, char* target) {
    targets_.assign(rows_.columns().size(), nullptr);
    targets_[static_cast<std::size_t>(column)] = target;
    rows_.gather(source.replica, some_.data(), places_.data(), static_cast<std::int64_t>(some_.size()),
                 targets_.data());
}

// All stacks of a few drawn rows, then of the next few: the frames that obs and next_obs share, and those of
// overlapping stacks, are read from memory once and from the cache after that.
void Assembly::stack_all(const Source& source, std::int64_t n, std::int64_t from, char* const* targets) {
    std::int64_t bytes = 1;
    for (const Shown& field : shown_)
        if (field.before >= 0) bytes += rows_.columns()[static_cast<std::size_t>(field.column)].bytes;
    const std::int64_t each = steps();
    const std::int64_t few = std::max<std::int64_t>(1, kCached / (bytes * config_.frames * each));
    for (std::int64_t k = 0; k < n; k += few)
        for (std::size_t field = 0; field < shown_.size(); ++field)
            if (shown_[field].before >= 0)
                stack(source, shown_[field], k * each, std::min(n, k + few) * each, from, targets[field]);
}

// Frames of the stacks of steps begin .. end − 1, oldest first. What lies before the oldest stored step of
// the episode is padding.
void Assembly::stack(const Source& source, const Shown& field, std::int64_t begin, std::int64_t end,
                     std::int64_t from, char* target) {
    const bool last = field.of_last && config_.n_step > 0;
    const std::vector<Position>& positions = last ? ends_ : positions_;
    const std::vector<std::int64_t>& newest = field.of_next ? next_ : last ? last_ : own_;
    const std::int64_t k = config_.frames, inner = last ? inner_steps() : 1;
    const auto place = [&](std::int64_t i, std::int64_t j) { return (from * inner + i) * k + j; };
    some_.clear();
    places_.clear();
    for (std::int64_t i = begin * inner; i < end * inner; ++i) {
        const Position& position = positions[static_cast<std::size_t>(i)];
        for (std::int64_t j = 0; j < k - 1; ++j) {
            const std::int64_t back = k - 1 - j - (field.after ? 1 : 0);
            const std::int64_t step = position.span.step - back;
            std::int64_t row = rows_.zero_row();
            if (position.stored && (step >= position.span.low || config_.repeat))
                row = source.episodes->slot(position.span, std::max(step, position.span.low));
            some_.push_back(row);
            places_.push_back(place(i, j));
        }
        if (field.before != field.column) continue;
        some_.push_back(newest[static_cast<std::size_t>(i)]);
        places_.push_back(place(i, k - 1));
    }
    copy(source, field.before, target);
    if (field.before == field.column) return;
    some_.assign(newest.begin() + begin * inner, newest.begin() + end * inner);
    places_.clear();
    for (std::int64_t i = begin * inner; i < end * inner; ++i) places_.push_back(place(i, k - 1));
    copy(source, field.column, target);
}

// The value that the first stored step of each sequence holds.
void Assembly::show_state(const Source& source, const Shown& field, std::int64_t n, std::int64_t from,
                          char* target) {
    some_.clear();
    for (std::int64_t k = 0; k < n; ++k) {
        const auto begin = own_.begin() + k * steps();
        some_.push_back(
            *std::find_if(begin, begin + steps(), [&](std::int64_t row) { return row != rows_.zero_row(); }));
    }
    places_.resize(some_.size());
    std::iota(places_.begin(), places_.end(), from);
    copy(source, field.column, target);
}

// Draws which rows are relabelled, and the steps whose achieved goals those pursue. Their rows are asked for
// with those of the drawn steps.
void Assembly::draw_goals(const Source& source, const std::int64_t* slots, std::int64_t n, bool* relabelled) {
    const Shown& first = shown_[static_cast<std::size_t>(config_.achieved.front())];
    RowPart achieved;
    achieved.cover(rows_.columns()[static_cast<std::size_t>(first.column)]);
    const auto below = [&](std::int64_t n) {
        return static_cast<std::int64_t>(source.random.below(static_cast<std::uint64_t>(n)));
    };
    picked_.clear();  // the caller's array may change meanwhile
    goals_.clear();
    for (std::int64_t k = 0; k < n; ++k) {
        if (config_.n_step == 0) own_group_.part.expect(rows_.row(source.replica, slots[k]));
        relabelled[k] = source.random.uniform() < config_.share;
        if (!relabelled[k]) continue;
        const Episodes::Span span = source.episodes->span(slots[k]);
        std::int64_t step = span.high;
        if (config_.strategy == Strategy::future) step = span.step + below(span.high - span.step + 1);
        if (config_.strategy == Strategy::episode) step = span.low + below(span.high - span.low + 1);
        picked_.push_back(k);
        goals_.push_back(source.episodes->slot(span, step));
        achieved.expect(rows_.row(source.replica, row_of(source, first, goals_.back())));
    }
}

// Each goal is copied into every step that its row shows, so that a sequence or an n-step return pursues one
// goal throughout. The rewards under the new goals are Python's to compute.
void Assembly::relabel(const Source& source, std::int64_t n, std::int64_t from, char* const* targets) {
    for (std::size_t goal = 0; goal < config_.desired.size(); ++goal) {
        const Shown& achieved = shown_[static_cast<std::size_t>(config_.achieved[goal])];
        const auto field = static_cast<std::size_t>(config_.desired[goal]);
        const std::vector<Position>& positions =
            shown_[field].of_last && config_.n_step > 0 ? ends_ : positions_;
        const std::int64_t each = static_cast<std::int64_t>(positions.size()) / std::max<std::int64_t>(n, 1);
        some_.clear();
        places_.clear();
        for (std::size_t p = 0; p < picked_.size(); ++p) {
            for (std::int64_t i = picked_[p] * each; i < (picked_[p] + 1) * each; ++i) {
                if (!positions[static_cast<std::size_t>(i)].stored) continue;
                some_.push_back(row_of(source, achieved, goals_[p]));
                places_.push_back(from * each + i);
            }
        }
        copy(source, achieved.column, targets[field]);
    }
}

}  // namespace replaylab
