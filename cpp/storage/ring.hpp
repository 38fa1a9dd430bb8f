// The ids that are stored, and their slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "storage/removed_slots.hpp"
#include "support/prefetch.hpp"
#include "support/random.hpp"
#include "support/state.hpp"

namespace replaylab {

class Episodes;

// Which step is dropped if all slots are in use.
enum class Retention : int { fifo = 0, reservoir = 1, assigned = 2 };

// Ids count steps ever stored and are never reused. First in, first out: id i is in slot i mod capacity
// until i + capacity takes its place. Reservoir (Vitter 1985, algorithm R): the n-th step offered is kept
// with probability capacity/n, in a random slot, so that any slot may hold any id. Assigned: the owner of the
// rows passes the place of each step; a place gets a slot with its first step, and the slots in use are the
// first ones.
//
// A removed step keeps its slot until another step takes it, but is none of those that samplers see: sizes,
// ages and places in order count the others only.
class Ring {
  public:
    Ring(std::int64_t capacity, Retention retention)
        : capacity_(capacity),
          assigned_(retention == Retention::assigned),
          by_table_(retention != Retention::fifo),
          ids_(by_table_ ? static_cast<std::size_t>(capacity) : 0, -1),
          places_(assigned_ ? static_cast<std::size_t>(capacity) : 0, -1),
          slot_of_place_(places_) {}

    std::int64_t capacity() const { return capacity_; }
    // The id of the next step.
    std::int64_t next_id() const { return next_id_; }
    // The id of the first step since the last clear().
    std::int64_t first_id() const { return first_id_; }
    // The number of stored steps.
    std::int64_t size() const { return used() - gone_; }
    // The number of slots in use, the first ones: of stored and of removed steps.
    std::int64_t used() const { return assigned_ ? used_ : std::min(next_id_ - first_id_, capacity_); }
    // Returns whether the step in this slot, which is in use, was not removed.
    bool shows(std::int64_t slot) const { return gone_ == 0 || !removed_->has(slot); }
    // Returns whether a step is stored; and whether it is, or was removed.
    bool holds(std::int64_t id) const { return find(id) >= 0; }
    bool keeps(std::int64_t id) const { return find_in_use(id) >= 0; }
    // Returns the slot of a stored step, −1 if it is not stored.
    std::int64_t find(std::int64_t id) const {
        const std::int64_t slot = find_in_use(id);
        return slot >= 0 && shows(slot) ? slot : -1;
    }

    // Replaces n numbers k, 0 ≤ k < size, each by the slot of the k-th stored step in the order of slots.
    void number_slots(std::int64_t n, std::int64_t* numbers) const {
        for (std::int64_t i = 0; i < n && gone_ > 0; ++i) numbers[i] = removed_->other(numbers[i]);
    }

    // The slots of all stored steps.
    std::vector<std::int64_t> slots() const {
        std::vector<std::int64_t> slots;
        for (std::int64_t slot = 0; slot < used(); ++slot)
            if (shows(slot)) slots.push_back(slot);
        return slots;
    }

    // And of all removed ones.
    std::vector<std::int64_t> removed_slots() const {
        std::vector<std::int64_t> slots;
        for (std::int64_t slot = 0; slot < used() && gone_ > 0; ++slot)
            if (!shows(slot)) slots.push_back(slot);
        return slots;
    }

    // The slot of the step than which `age` stored steps are newer; 0 ≤ age < size. First in, first out
    // only: other retentions have no such order, so samplers that depend on age are refused for them.
    std::int64_t slot_of_age(std::int64_t age) const {
        if (gone_ == 0) return slot_in_use(age);
        const std::int64_t before_wrap = removed_->others_below(head_);
        return removed_->other(age < before_wrap ? before_wrap - 1 - age : size() - 1 - (age - before_wrap));
    }
    // The number of stored steps that are newer than the one in this slot.
    std::int64_t age(std::int64_t slot) const { return gone_ == 0 ? age_in_use(slot) : count_from(slot) - 1; }
    // The number of stored steps from this id on.
    std::int64_t count_from_id(std::int64_t id) const {
        const std::int64_t count = next_id_ - std::max(id, next_id_ - used());
        return gone_ == 0 || count <= 0 ? std::max<std::int64_t>(count, 0)
                                        : count_from(slot_in_use(count - 1));
    }

    // The slot of an id that is stored, or was removed.
    std::int64_t slot(std::int64_t id) const {
        return by_table_ ? slots_.at(id) : slot_in_use(next_id_ - 1 - id);
    }
    // The same by the number of steps added since, removed ones too.
    std::int64_t slot_in_use(std::int64_t age) const {
        const std::int64_t slot = head_ - 1 - age;
        return slot < 0 ? slot + capacity_ : slot;
    }

    // The stored step in this slot is no longer one: it is not drawn, nor found by its id.
    void remove(std::int64_t slot) {
        if (!removed_) removed_ = std::make_unique<RemovedSlots>(capacity_);
        removed_->flip(slot);
        ++gone_;
    }

    // The place of this slot's row, as the owner of the rows numbers it.
    std::int64_t place(std::int64_t slot) const {
        return assigned_ ? places_[static_cast<std::size_t>(slot)] : slot;
    }
    // The id of the step in this slot.
    std::int64_t id(std::int64_t slot) const { return next_id_ - 1 - age_in_use(slot); }

    // Gives the next step this id and invalidates all previous ones: capacity pushes must follow before any
    // other call.
    void jump(std::int64_t next_id) {
        next_id_ = next_id;
        head_ = next_id % capacity_;
    }

    // The slot whose step the next push drops, −1 if there is room. First in, first out only.
    std::int64_t to_drop() const { return next_id_ - first_id_ < capacity_ ? -1 : head_; }

    // Drops every step. Ids continue at the next multiple of the capacity: id i is still in slot i mod C,
    // and the slots in use are the first ones.
    void clear() {
        given_before_ += by_table_ && !assigned_ ? offered_ : next_id_ - first_id_;
        next_id_ = first_id_ = (next_id_ + capacity_ - 1) / capacity_ * capacity_;
        head_ = offered_ = used_ = 0;
        for (auto* table : {&ids_, &places_, &slot_of_place_}) std::fill(table->begin(), table->end(), -1);
        slots_.clear();
        removed_.reset();
        gone_ = 0;
    }

    // Returns a slot for the next step, dropping its previous step; −1 if a reservoir does not keep the step.
    std::int64_t push(Random& random) {
        const std::int64_t slot = by_table_ ? pick(random) : head_;
        if (slot < 0) return slot;
        put(slot);
        return slot;
    }

    // Stores the next n steps in a run of slots, at most so many as there are up to the last, and returns the
    // first slot. First in, first out only.
    std::int64_t push_run(std::int64_t& n) {
        const std::int64_t slot = head_;
        n = std::min(n, capacity_ - slot);
        head_ = slot + n == capacity_ ? 0 : slot + n;
        next_id_ += n;
        for (std::int64_t k = slot; k < slot + n && gone_ > 0; ++k) fill(k);
        return slot;
    }
    bool in_order() const { return !by_table_; }

    // Stores the next step at this place, and returns the place's slot. Assigned only.
    std::int64_t push_to(std::int64_t place) {
        std::int64_t& slot = slot_of_place_[static_cast<std::size_t>(place)];
        if (slot < 0) {
            slot = used_++;
            places_[static_cast<std::size_t>(slot)] = place;
        }
        put(slot);
        return slot;
    }

    // The episodes of the stored steps, null if nothing needs them; and the steps of a block of an episode if
    // sequences are drawn, otherwise 0.
    const Episodes* episodes() const { return episodes_; }
    bool in_blocks() const { return stride_ > 0; }
    std::int64_t stride() const { return stride_; }
    void attach(const Episodes* episodes, std::int64_t stride) {
        episodes_ = episodes;
        stride_ = stride;
    }

    // The time of a stored step, as the field of the sampler's clock says; never less than that of older
    // steps. Read only where a sampler has such a clock.
    double time(std::int64_t slot) const { return times_[slot]; }
    void expect_time(std::int64_t slot) const { prefetch(&times_[slot]); }
    void attach_times(const double* times) { times_ = times; }

    // The number of stored steps that a draw requires.
    std::int64_t min_size() const { return min_size_; }
    void need(std::int64_t min_size) { min_size_ = min_size; }

    // Saves or restores ids, slots and counters.
    void visit(StateVisitor& state) {
        state.count("next_id", next_id_);
        head_ = next_id_ % capacity_;
        std::vector<std::int64_t> cleared{first_id_, given_before_};
        // Saved only if the ring was cleared, so that other snapshots keep their format.
        if (state.restoring() ? state.has("cleared") : first_id_ > 0) {
            state.visit("cleared", cleared);
            first_id_ = cleared.at(0);
            given_before_ = cleared.at(1);
            state.must(first_id_ >= 0 && first_id_ <= next_id_ && first_id_ % capacity_ == 0 &&
                           given_before_ >= 0 && given_before_ <= StateVisitor::kMost,
                       "cleared");
        }
        visit_tables(state);
        // Saved only if there are any, likewise.
        std::vector<std::int64_t> removed = removed_slots();
        if (!(state.restoring() ? state.has("removed") : gone_ > 0)) return;
        state.visit("removed", removed);
        for (const std::int64_t slot : removed) {
            if (!state.restoring()) continue;
            state.must(slot >= 0 && slot < used() && shows(slot), "removed");
            remove(slot);
        }
    }

    // Returns about how many bytes the ids by slot, their hash table and the tables of places take.
    static std::int64_t nbytes(std::int64_t capacity, Retention retention) {
        if (retention == Retention::fifo) return 0;
        return (retention == Retention::assigned ? 64 : 48) * capacity;
    }
    // Bytes taken since a step was removed; and the same before.
    std::int64_t grown_nbytes() const { return removed_ ? grown_nbytes(capacity_) : 0; }
    static std::int64_t grown_nbytes(std::int64_t capacity) { return RemovedSlots::nbytes(capacity); }

  private:
    void visit_tables(StateVisitor& state) {
        if (!by_table_) return;
        if (assigned_) {
            visit_places(state);
        } else {
            state.count("offered", offered_);
            state.must(offered_ >= next_id_ - first_id_, "offered");
        }
        state.visit("ids", ids_);
        state.must(static_cast<std::int64_t>(ids_.size()) == capacity_, "ids");
        slots_.clear();
        for (std::int64_t slot = 0; slot < used(); ++slot) {
            const std::int64_t id = ids_[static_cast<std::size_t>(slot)];
            state.must(id >= 0 && id < next_id_ && slots_.emplace(id, slot).second, "ids");
        }
    }

    std::int64_t find_in_use(std::int64_t id) const {
        if (by_table_) {
            const auto entry = slots_.find(id);
            return entry == slots_.end() ? -1 : entry->second;
        }
        const std::int64_t age = next_id_ - 1 - id;
        return age >= 0 && age < std::min(next_id_ - first_id_, capacity_) ? slot_in_use(age) : -1;
    }

    // The number of steps added since the one in this slot, removed ones too.
    std::int64_t age_in_use(std::int64_t slot) const {
        if (by_table_) return next_id_ - 1 - ids_[static_cast<std::size_t>(slot)];
        const std::int64_t age = head_ - 1 - slot;
        return age < 0 ? age + capacity_ : age;
    }

    // The number of stored steps in this slot and newer, where some were removed.
    std::int64_t count_from(std::int64_t slot) const {
        const std::int64_t newer = removed_->others_below(head_) - removed_->others_below(slot);
        return slot < head_ ? newer : newer + size();
    }

    // A step is stored in this slot, whatever was before.
    void fill(std::int64_t slot) {
        if (shows(slot)) return;
        removed_->flip(slot);
        --gone_;
    }

    std::int64_t pick(Random& random) {
        ++offered_;
        if (next_id_ - first_id_ < capacity_) return next_id_ - first_id_;
        const auto slot = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(offered_)));
        return slot < capacity_ ? slot : -1;
    }

    // Stores the next step in this slot.
    void put(std::int64_t slot) {
        fill(slot);
        if (by_table_) {
            std::int64_t& id = ids_[static_cast<std::size_t>(slot)];
            slots_.erase(id);
            id = next_id_;
            slots_[id] = slot;
        }
        head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
        ++next_id_;
    }

    void visit_places(StateVisitor& state) {
        state.count("used", used_);
        state.must(used_ <= std::min(capacity_, next_id_ - first_id_), "used");
        state.visit("places", places_);
        state.must(static_cast<std::int64_t>(places_.size()) == capacity_, "places");
        std::fill(slot_of_place_.begin(), slot_of_place_.end(), -1);
        for (std::int64_t slot = 0; slot < used_; ++slot) {
            const std::int64_t place = places_[static_cast<std::size_t>(slot)];
            state.must(place >= 0 && place < capacity_, "places");
            std::int64_t& its = slot_of_place_[static_cast<std::size_t>(place)];
            state.must(its < 0, "places");
            its = slot;
        }
    }

    std::int64_t capacity_;
    std::int64_t next_id_ = 0;
    std::int64_t first_id_ = 0;      // the next id at the last clear()
    std::int64_t given_before_ = 0;  // steps added before that
    std::int64_t head_ = 0;          // the slot the next step goes to: next_id mod capacity
    const Episodes* episodes_ = nullptr;
    const double* times_ = nullptr;  // by slot
    std::int64_t stride_ = 0;
    std::int64_t min_size_ = 1;
    std::unique_ptr<RemovedSlots> removed_;  // null: never was one removed
    std::int64_t gone_ = 0;                  // slots of removed steps
    bool assigned_;
    bool by_table_;  // any slot may hold any id
    std::int64_t offered_ = 0, used_ = 0;
    std::vector<std::int64_t> ids_;  // by slot
    std::unordered_map<std::int64_t, std::int64_t> slots_;
    std::vector<std::int64_t> places_, slot_of_place_;  // by slot, and by place; −1: none
};

}  // namespace replaylab
