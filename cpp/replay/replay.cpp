#include "replay/replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "indexes/sequence_blocks.hpp"
#include "samplers/sampler_table.hpp"
#include "support/error.hpp"
#include "support/prefetch.hpp"

namespace replaylab {

Replay::Replay(ReplayConfig config)
    : outside_(std::move(config.outside)),
      rows_(config.stored_columns(), config.capacity, config.replicas,
            config.transforms.derived ? config.capacity : 0, outside_.get()),
      num_envs_(config.num_envs),
      skip_after_end_(config.skip_after_end),
      sampler_(config.sampler),
      stored_(config.stored_fields()),
      nbytes_(config.replicas *
              (config.nbytes() -
               (outside_ ? (config.row_nbytes() - 4) * (config.capacity + 1) + config.environments_nbytes()
                         : 0))),
      assembly_(config.transforms, config.shown_fields(true), rows_),
      plain_(TransformConfig{}, config.shown_fields(false), rows_) {
    for (std::size_t f = 0; f < config.fields.size(); ++f) {
        const Column& column = config.fields[f];
        if (column.bytes != column.itemsize) continue;  // many values: not the flag of this name
        if (column.name == "terminated") terminated_ = Flag{static_cast<std::int64_t>(f), column};
        if (column.name == "truncated") truncated_ = Flag{static_cast<std::int64_t>(f), column};
        if (column.name == clock_of(sampler_)) clock_ = Flag{static_cast<std::int64_t>(f), column};
    }
    std::vector<std::int64_t> pairs(stored_.size(), -1);
    for (std::size_t f = 0; f < config.fields.size() && config.transforms.derived; ++f)
        if (assembly_.shown()[f].of_next)
            pairs[static_cast<std::size_t>(assembly_.shown()[f].column)] = static_cast<std::int64_t>(f);
    for (std::int64_t r = 0; r < config.replicas; ++r) {
        replays_.push_back(Single{
            Ring(config.capacity, config.retention), Random(config.streams[static_cast<std::size_t>(r)]),
            make_sampler(config.sampler, config.capacity),
            std::vector<char>(static_cast<std::size_t>(num_envs_), kNone),
            zeros_by_slot(outside_ ? 0 : config.environments_nbytes() / 4), nullptr, nullptr,
            zeros_by_slot(config.count_replays ? config.capacity : 0), Tally{},
            std::vector<double>(static_cast<std::size_t>(clock_.field < 0 ? 0 : config.capacity))});
        Single& one = replays_.back();
        if (config.keeps_episodes())
            one.episodes =
                std::make_unique<Episodes>(config.capacity, outside_ ? outside_->streams() : num_envs_);
        if (config.transforms.derived) one.next_rows = std::make_unique<NextRows>(rows_, r, num_envs_, pairs);
        one.ring.attach(one.episodes.get(), config.transforms.length > 0 ? config.transforms.stride : 0);
        one.ring.need(config.min_size);
        one.ring.attach_times(one.times.data());
    }
}

std::int64_t Replay::nbytes() const {
    const auto held = lock_.take();
    std::int64_t grown = 0;
    for (const Single& one : replays_) {
        grown += one.next_rows ? one.next_rows->grown_nbytes() : 0;
        grown += one.episodes ? one.episodes->grown_nbytes() : 0;
        grown += one.ring.grown_nbytes();
    }
    return nbytes_ + grown + rows_.packed_nbytes();
}

// Whether this step of an environment is to be stored, and whether it ends its episode.
inline bool Replay::takes(Single& one, std::int64_t env, const char* const* sources, std::int64_t step,
                          const bool* where, bool& ends) const {
    if (where != nullptr && !where[step]) return false;
    ends = terminated_.set(sources, step) || truncated_.set(sources, step);
    char& last = one.last[static_cast<std::size_t>(env)];
    const bool resetting = skip_after_end_ && last == kEnded;
    last = resetting ? kNone : ends ? kEnded : kOpen;
    return !resetting;
}

// Whether the rows may change; the thread that keeps them from it would wait for ever.
bool Replay::may_change() const {
    if (!lock_.frozen() || outside_) return true;
    if (!lock_.frozen_by_me()) return false;
    fail("SnapshotError",
         "steps cannot be added or changed by the thread that is saving the buffer, from a signal handler or "
         "a "
         "callback; do so after save() has returned");
}

bool Replay::add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids) {
    const auto held = lock_.take();
    if (!may_change()) return false;
    if (asks_) check_decided();
    asks_ = false;
    if (clock_.field >= 0) check_clock(sources, steps, where);
    columns_.clear();
    for (const std::int64_t field : stored_) columns_.push_back(sources[field]);
    if (outside_) {
        add_outside(sources, steps, where, ids);
        return true;
    }
    std::int64_t step = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        places_.clear();
        if (where == nullptr && stores_alike(one)) {
            add_run(r, sources, steps, step, ids);
            step += steps * num_envs_;
            continue;
        }
        if (rows_.compressed()) rows_.reserve(r, (one.next_rows ? 2 : 1) * steps * num_envs_);
        for (std::int64_t t = 0; t < steps; ++t) {
            for (std::int64_t e = 0; e < num_envs_; ++e, ++step) {
                ids[step] = -1;
                bool ends;
                if (!takes(one, e, sources, step, where, ends)) continue;
                const std::int64_t id = one.ring.next_id();
                const std::int64_t dropped = one.ring.to_drop();
                if (dropped >= 0 && one.episodes) one.episodes->dropped(dropped);
                if (dropped >= 0 && one.next_rows) one.next_rows->dropped(dropped);
                const std::int64_t slot = one.ring.push(one.random);
                if (slot < 0) continue;
                ids[step] = id;
                slots_.push_back(slot);
                places_.push_back(step);
                if (!one.counts.empty()) one.counts[static_cast<std::size_t>(slot)] = 0;
                if (!one.envs.empty())
                    one.envs[static_cast<std::size_t>(slot)] = static_cast<std::uint32_t>(e);
                if (one.episodes) one.episodes->stored(slot, e, ends);
                if (one.episodes && ends) episode_ends_.push_back({id, terminated_.set(sources, step)});
                if (one.next_rows) one.next_rows->stored(slot, e, sources, columns_.data(), step);
            }
        }
        const auto stored = static_cast<std::int64_t>(slots_.size());
        if (stored > 0) rows_.scatter(r, slots_.data(), places_.data(), stored, columns_.data());
        if (rows_.compressed()) rows_.tidy(r);
        if (stored == 0) continue;
        if (clock_.field >= 0) note_times(r);
        one.sampler->stored(one.ring, one.random, slots_.data(), stored);
        report_ends(one);
    }
    return true;
}

// Whether every step is stored the same way, whatever it holds and wherever it belongs.
bool Replay::stores_alike(const Single& one) const {
    return one.ring.in_order() && !skip_after_end_ && !one.episodes && !one.next_rows && !rows_.compressed();
}

// Stores steps number `from` and following in runs of slots.
void Replay::add_run(std::int64_t replica, const char* const* sources, std::int64_t steps, std::int64_t from,
                     std::int64_t* ids) {
    Single& one = replays_[static_cast<std::size_t>(replica)];
    const std::int64_t n = steps * num_envs_;
    std::iota(ids + from, ids + from + n, one.ring.next_id());
    slots_.resize(static_cast<std::size_t>(n));
    for (std::int64_t k = 0, run; k < n; k += run) {
        run = n - k;
        const std::int64_t slot = one.ring.push_run(run);
        rows_.fill(rows_.row(replica, slot), run, from + k, columns_.data());
        std::iota(slots_.begin() + k, slots_.begin() + k + run, slot);
        if (!one.counts.empty()) std::fill_n(one.counts.begin() + slot, run, 0);
        for (std::int64_t i = 0; i < run && !one.envs.empty(); ++i)
            one.envs[static_cast<std::size_t>(slot + i)] = static_cast<std::uint32_t>((k + i) % num_envs_);
    }
    bool ends;
    for (std::int64_t e = 0; e < num_envs_ && n > 0; ++e)
        takes(one, e, sources, from + n - num_envs_ + e, nullptr, ends);
    if (clock_.field >= 0) note_times(replica);
    if (n > 0) one.sampler->stored(one.ring, one.random, slots_.data(), n);
}

// The times of the steps just stored in slots_. Those that other processes stored may be earlier than of
// steps before them, and count as equally late.
void Replay::note_times(std::int64_t replica) {
    Single& one = replays_[static_cast<std::size_t>(replica)];
    const auto column = static_cast<std::size_t>(column_of(clock_.field));
    const auto n = static_cast<std::int64_t>(slots_.size());
    for (std::int64_t k = std::max<std::int64_t>(0, n - one.ring.capacity()); k < n; ++k) {
        const std::int64_t slot = slots_[static_cast<std::size_t>(k)];
        const double time = number_of(clock_.column, rows_.value(replica, slot, column, scratch_));
        if (time > one.now && time <= std::numeric_limits<double>::max()) one.now = time;
        one.times[static_cast<std::size_t>(slot)] = one.now;
    }
}

// Throws unless the steps' times are finite and, in each replica, none is earlier than the one before.
void Replay::check_clock(const char* const* sources, std::int64_t steps, const bool* where) {
    const char* source = sources[clock_.field];
    std::vector<double> latest;
    for (const Single& one : replays_) {
        latest.push_back(one.added);
        for (std::int64_t k = 0; k < steps * num_envs_; ++k, source += clock_.column.bytes) {
            if (where != nullptr && !*where++) continue;
            const double time = number_of(clock_.column, source);
            if (!(std::abs(time) <= std::numeric_limits<double>::max()))
                fail("FieldError", "field `", clock_.column.name,
                     "` is the clock of Aged and must be finite, but got ", time, "; nothing was stored");
            if (time < latest.back())
                fail("FieldError", "field `", clock_.column.name,
                     "` is the clock of Aged and must never decrease, but got ", time, " after ",
                     latest.back(),
                     "; nothing was stored: pass a number that only grows, such as the count of updates, or "
                     "make the "
                     "buffer with clock=\"steps\"");
            latest.back() = time;
        }
    }
    for (std::size_t r = 0; r < replays_.size(); ++r) replays_[r].added = latest[r];
}

bool Replay::assign(const std::int64_t* places, std::int64_t n, std::int64_t* ids) {
    const auto held = lock_.take();
    if (!may_change()) return false;
    Single& one = replays_[0];
    ids_.assign(places, places + n);  // the caller's array may change at any time
    for (const std::int64_t place : ids_)
        if (place < 0 || place >= one.ring.capacity())
            fail("IdError", "a slot must be 0 to ", one.ring.capacity() - 1, ", but one is ", place,
                 "; nothing was stored");
    slots_.clear();
    for (const std::int64_t place : ids_) {
        *ids++ = one.ring.next_id();
        slots_.push_back(one.ring.push_to(place));
        if (!one.counts.empty()) one.counts[static_cast<std::size_t>(slots_.back())] = 0;
    }
    if (n > 0) one.sampler->stored(one.ring, one.random, slots_.data(), n);
    return true;
}

// Steps go out one by one, and come back in by catch_up() with those of other processes.
void Replay::add_outside(const char* const* sources, std::int64_t steps, const bool* where,
                         std::int64_t* ids) {
    if (closed_) fail("StorageError", "the buffer was closed; make it again to open its rows");
    std::int64_t step = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        outside_->blank(r);  // first of all: whether this process may add
        for (std::int64_t t = 0; t < steps; ++t) {
            for (std::int64_t e = 0; e < num_envs_; ++e, ++step) {
                ids[step] = -1;
                bool ends;
                if (!takes(replays_[static_cast<std::size_t>(r)], e, sources, step, where, ends)) continue;
                rows_.fill(outside_->blank(r), 1, step, columns_.data());
                ids[step] = outside_->publish(r, e, ends);
            }
        }
    }
}

// Takes in what was added outside since, by whichever process.
void Replay::catch_up() {
    if (outside_ && !closed_) outside_->check_length();
    for (std::int64_t r = 0; outside_ && r < replicas(); ++r) catch_up(r);
}

void Replay::catch_up(std::int64_t replica) {
    if (closed_) fail("StorageError", "the buffer was closed; make it again to open its rows");
    Single& one = replays_[static_cast<std::size_t>(replica)];
    Ring& ring = one.ring;
    std::int64_t held = ring.size();  // steps up to next_id − 1 that are taken in
    const auto forget = [&](std::int64_t next_id) {
        for (std::int64_t age = held - 1; age >= 0 && one.episodes; --age)
            one.episodes->dropped(ring.slot_of_age(age));
        held = 0;
        slots_.clear();
        ring.jump(next_id);
    };
    slots_.clear();
    std::int64_t next = outside_->next_id(replica);
    if (torn_)
        fail("StorageError", "the rows were found damaged before; make the buffer again to look at them");
    if (next <= ring.next_id()) return;
    torn_ = true;  // until all of it is done
    if (next - ring.next_id() > ring.capacity()) forget(next - ring.capacity());
    while (ring.next_id() < next) {
        MappedRows::Step step;
        if (!outside_->find(replica, ring.next_id(), step)) {  // overtaken by all that the rows have room for
            next = outside_->next_id(replica);
            forget(next - ring.capacity());
            continue;
        }
        if (one.episodes && !one.episodes->follows(step.stream, step.step)) cut(one, step.stream);
        if (held < ring.capacity())
            ++held;
        else if (one.episodes)
            one.episodes->dropped(ring.to_drop());
        const std::int64_t slot = ring.push(one.random);
        slots_.push_back(slot);
        rows_.point(replica, slot, step.row);
        if (!one.counts.empty()) one.counts[static_cast<std::size_t>(slot)] = 0;
        if (!one.episodes) continue;
        one.episodes->resume(step.stream, step.step);
        one.episodes->stored(slot, step.stream, step.ends);
        if (step.ends) episode_ends_.push_back({ring.id(slot), terminated(replica, slot)});
    }
    if (clock_.field >= 0) note_times(replica);
    if (!slots_.empty())
        one.sampler->stored(ring, one.random, slots_.data(), static_cast<std::int64_t>(slots_.size()));
    report_ends(one);
    torn_ = false;
    if (slots_.size() > std::size_t{1} << 20) std::vector<std::int64_t>().swap(slots_);  // once, not for ever
}

// Whether what was just read of a replica's rows was all theirs; if not, catches up for another try.
bool Replay::whole(std::int64_t replica, std::int64_t tries) {
    constexpr std::int64_t kTries = 1000;
    if (!outside_) return true;
    const Ring& ring = replays_[static_cast<std::size_t>(replica)].ring;
    if (outside_->whole_since(replica, ring.next_id() - ring.size())) return true;
    if (tries == kTries)
        fail("StorageError", "more than ", outside_->headroom(),
             " steps were added while one batch was read, ", kTries,
             " times in a row; create the storage with more `writers`, which gives it more room");
    catch_up(replica);
    return false;
}

void Replay::flush() {
    const auto held = lock_.take();
    if (outside_ && !closed_) outside_->flush();
}

void Replay::close() {
    const auto held = lock_.take();
    closed_ = true;
    if (outside_) outside_->close();
}

Source Replay::source(std::int64_t replica) {
    Single& one = replays_[static_cast<std::size_t>(replica)];
    return Source{replica, one.ring, one.random, one.episodes.get(), one.next_rows.get()};
}

void Replay::sample(std::int64_t batch, const double* scheduled, std::int64_t stride, bool counted,
                    char* const* targets, std::int64_t* ids, double* probabilities, float* weights,
                    const ExtraTargets& extra) {
    const std::int64_t n = batch_rows(batch);
    const auto held = lock_.take();
    require_streams();
    catch_up();
    for (const Single& one : replays_) one.sampler->check(one.ring, batch);
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        draw(r, batch, scheduled + r * stride, targets, ids, probabilities, weights, extra);
        for (std::int64_t tries = 1; !whole(r, tries); ++tries) {
            one.sampler->check(one.ring, batch);  // others may have added fewer, longer sequences meanwhile
            draw(r, batch, scheduled + r * stride, targets, ids, probabilities, weights, extra);
        }
        one.sampler->finish(one.ring, slots_.data(), n);
        if (counted) count(one, n);
    }
}

void Replay::reseed(const std::vector<Random::State>& streams) {
    const auto held = lock_.take();
    for (std::size_t r = 0; r < replays_.size(); ++r) replays_[r].random = Random(streams.at(r));
    lock_.set_streams_copied(false);
}

bool Replay::streams_copied() const {
    const auto held = lock_.take();
    return lock_.streams_copied();
}

void Replay::set_streams_copied() {
    const auto held = lock_.take();
    lock_.set_streams_copied(true);
}

void Replay::check_streams() const {
    const auto held = lock_.take();
    require_streams();
}

// The caller holds the lock.
void Replay::require_streams() const {
    if (!lock_.streams_copied()) return;
    fail("ConfigError",
         "a buffer that was copied into another process by a fork or a spawn must be given another random "
         "stream "
         "before it draws, or both processes would draw the same batches; call buffer.reseed(seed) in this "
         "process, with a different seed in each process");
}

// One replica's batch; its slots are then in slots_.
void Replay::draw(std::int64_t replica, std::int64_t batch, const double* scheduled, char* const* targets,
                  std::int64_t* ids, double* probabilities, float* weights, const ExtraTargets& extra) {
    const std::int64_t n = batch_rows(batch), from = replica * n;
    Single& one = replays_[static_cast<std::size_t>(replica)];
    slots_.resize(static_cast<std::size_t>(n));
    one.sampler->draw(one.ring, one.random, batch, scheduled,
                      Draw{slots_.data(), probabilities + from, weights + from});
    for (std::int64_t k = 0; k < n; ++k) ids[from + k] = one.ring.id(slots_[static_cast<std::size_t>(k)]);
    for (std::int64_t k = 0; k < n && extra.slots != nullptr; ++k)
        extra.slots[from + k] = one.ring.place(slots_[static_cast<std::size_t>(k)]);
    if (assembly_.config().length > 0) {  // the row is the whole block's: so are its id and its chance
        places_.clear();
        ends_.clear();
        for (const std::int64_t slot : slots_) one.episodes->expect(slot);
        for (std::int64_t k = 0; k < n; ++k) {
            const std::size_t begin = places_.size();
            push_row(one.ring, slots_[static_cast<std::size_t>(k)], places_);
            ids[from + k] = one.ring.id(places_[begin]);
            ends_.push_back(static_cast<std::ptrdiff_t>(places_.size()));
        }
        values_.resize(places_.size());
        one.sampler->distribution(one.ring, places_.data(), static_cast<std::int64_t>(places_.size()), batch,
                                  scheduled, values_.data());
        std::ptrdiff_t begin = 0;
        for (std::int64_t k = 0; k < n; ++k) {
            const std::ptrdiff_t end = ends_[static_cast<std::size_t>(k)];
            probabilities[from + k] = std::accumulate(values_.begin() + begin, values_.begin() + end, 0.0);
            begin = end;
        }
    }
    assembly_.gather(source(replica), slots_.data(), n, from, targets, extra);
}

// Takes note of the rows just put together.
void Replay::count(Single& one, std::int64_t rows) {
    one.tally.samples += rows;
    if (one.counts.empty()) return;
    for (const std::int64_t slot : assembly_.own())
        if (slot < rows_.capacity()) ++one.counts[static_cast<std::size_t>(slot)];
}

void Replay::count(const std::int64_t* given, std::int64_t n) {
    const auto held = lock_.take();
    const std::int64_t* ids = checked(given, n);
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        for (const std::int64_t* id = ids + r * n; id < ids + (r + 1) * n; ++id)
            if (const std::int64_t slot = one.ring.find(*id); slot >= 0)
                slots_.push_back(slot);  // else dropped
        assembly_.find_own(source(r), slots_.data(), static_cast<std::int64_t>(slots_.size()));
        count(one, n);
    }
}

// The ids as they are now, as the caller's array may change at any time; each was given out.
const std::int64_t* Replay::checked(const std::int64_t* ids, std::int64_t n) {
    ids_.assign(ids, ids + n * replicas());
    for (std::int64_t r = 0; r < replicas(); ++r) {
        const std::int64_t next = replays_[static_cast<std::size_t>(r)].ring.next_id();
        for (std::int64_t k = r * n; k < (r + 1) * n; ++k) {
            const std::int64_t id = ids_[static_cast<std::size_t>(k)];
            if (id >= -1 && id < next) continue;
            if (next == 0) fail("IdError", "id ", id, " was never given out: no step was stored yet");
            fail("IdError", "id ", id, " was never given out: ids so far are 0 to ", next - 1,
                 "; pass the ids that add or sample returned");
        }
    }
    return ids_.data();
}

void Replay::check_stored(std::int64_t replica, const std::int64_t* ids, std::int64_t n) const {
    const Ring& ring = replays_[static_cast<std::size_t>(replica)].ring;
    for (std::int64_t k = replica * n; k < (replica + 1) * n; ++k) {
        if (ring.holds(ids[k])) continue;
        if (ring.size() == 0) fail("IdError", "id ", ids[k], " is not stored: the buffer holds no step now");
        if (ring.keeps(ids[k]))
            fail("IdError", "id ", ids[k], " is not stored: it was removed; pass ids from stored_ids()");
        fail("IdError", "id ", ids[k], " is not stored: the buffer now holds ids ",
             ring.next_id() - ring.used(), " to ", ring.next_id() - 1,
             "; steps that were overwritten cannot be read");
    }
}

std::int64_t Replay::update(const std::int64_t* given, const double* fed, std::int64_t n, bool td_errors) {
    const auto held = lock_.take();
    fed_.assign(fed, fed + n * replicas());
    const double* values = fed_.data();
    const double least = td_errors ? -std::numeric_limits<double>::max() : 0.0;
    for (std::int64_t k = 0; k < n * replicas(); ++k) {
        if (!(values[k] >= least && values[k] <= std::numeric_limits<double>::max()))
            fail("PriorityError", td_errors ? "td_error" : "priority", " must be finite",
                 td_errors ? "" : " and not negative", ", but entry ", k, " (id ", given[k], ") is ",
                 values[k], "; no priority was changed");
    }
    catch_up();
    const std::int64_t* ids = checked(given, n);
    std::int64_t updated = 0;
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        values_.clear();
        updated += for_stored(r, ids, n, [&](std::int64_t k, std::int64_t slot) {
            push_row(one.ring, slot, slots_);
            while (values_.size() < slots_.size()) values_.push_back(values[k]);
        });
        const auto fed = static_cast<std::int64_t>(slots_.size());
        if (fed > 0) one.sampler->update(one.ring, slots_.data(), values_.data(), fed, td_errors);
    }
    return updated;
}

void Replay::probabilities(const std::int64_t* given, std::int64_t n, std::int64_t batch,
                           const double* scheduled, std::int64_t stride, double* out) {
    const auto held = lock_.take();
    catch_up();
    const std::int64_t* ids = checked(given, n);
    std::fill(out, out + n * replicas(), 0.0);
    for (std::int64_t r = 0; r < replicas(); ++r) {
        const Single& one = replays_[static_cast<std::size_t>(r)];
        slots_.clear();
        places_.clear();
        for (std::int64_t k = r * n; k < (r + 1) * n; ++k) {
            const std::int64_t slot = one.ring.find(ids[k]);
            if (slot < 0) continue;
            const std::size_t before = slots_.size();
            push_row(one.ring, slot, slots_);
            if (slots_[before] != slot) slots_.resize(before);  // it does not stand for its block
            places_.resize(slots_.size(), k);
        }
        values_.resize(slots_.size());
        one.sampler->distribution(one.ring, slots_.data(), static_cast<std::int64_t>(slots_.size()), batch,
                                  scheduled + r * stride, values_.data());
        for (std::size_t k = 0; k < places_.size(); ++k) out[places_[k]] += values_[k];
    }
}

void Replay::gather(const std::int64_t* given, std::int64_t n, bool transformed, bool aside,
                    char* const* targets, const ExtraTargets& extra) {
    const auto held = lock_.take();
    catch_up();
    const std::int64_t* ids = checked(given, n);
    for (std::int64_t r = 0; r < replicas(); ++r) check_stored(r, ids, n);
    for (std::int64_t r = 0; r < replicas(); ++r) {
        Single& one = replays_[static_cast<std::size_t>(r)];
        const Random before = one.random;
        std::int64_t tries = 0;
        do {
            if (tries > 0) check_stored(r, ids, n);
            slots_.clear();
            for (std::int64_t k = r * n; k < (r + 1) * n; ++k) slots_.push_back(one.ring.slot(ids[k]));
            (transformed ? assembly_ : plain_).gather(source(r), slots_.data(), n, r * n, targets, extra);
        } while (!whole(r, ++tries));
        if (aside)
            one.random = before;
        else if (transformed)
            count(one, n);
    }
}

void Replay::blocks(const std::int64_t* given, std::int64_t n, std::int64_t width, std::int64_t* out) {
    const auto held = lock_.take();
    catch_up();
    const std::int64_t* ids = checked(given, n);
    std::fill(out, out + n * replicas() * width, -1);
    for (std::int64_t k = 0; k < n * replicas(); ++k) {
        const Single& one = replays_[static_cast<std::size_t>(k / n)];
        const std::int64_t slot = one.ring.find(ids[k]);
        if (slot < 0) continue;
        slots_.clear();
        if (width == 1)
            slots_.push_back(first_of_block(one.ring, slot));
        else
            push_row(one.ring, slot, slots_);
        for (std::size_t j = 0; j < slots_.size(); ++j)
            out[k * width + static_cast<std::int64_t>(j)] = one.ring.id(slots_[j]);
    }
}

std::vector<SamplingTotals> Replay::totals() {
    const auto held = lock_.take();
    catch_up();
    std::vector<SamplingTotals> found;
    for (const Single& one : replays_)
        if (const auto totals = one.sampler->totals(one.ring)) found.push_back(*totals);
    return found;
}

void Replay::counts(std::int64_t* sizes, std::int64_t* next_ids) const {
    const auto held = lock_.take();
    for (std::size_t r = 0; r < replays_.size(); ++r) {
        const Ring& ring = replays_[r].ring;
        next_ids[r] = outside_ && !closed_ ? outside_->next_id(static_cast<std::int64_t>(r)) : ring.next_id();
        sizes[r] = outside_ ? std::min(next_ids[r], ring.capacity()) : ring.size();
    }
}

}  // namespace replaylab
