// Which ids a first-in-first-out ring holds, and in which slots.
#pragma once

#include <algorithm>
#include <cstdint>

namespace replaylab {

// Ids count steps ever stored and are never reused; id i lies in slot i mod capacity until i + capacity
// takes its place.
class Ring {
  public:
    explicit Ring(std::int64_t capacity) : capacity_(capacity) {}

    std::int64_t capacity() const { return capacity_; }
    std::int64_t next_id() const { return next_id_; }
    std::int64_t size() const { return std::min(next_id_, capacity_); }
    bool holds(std::int64_t id) const { return id >= next_id_ - size() && id < next_id_; }

    // The slot of a step `age` steps older than the newest; 0 ≤ age < size.
    std::int64_t slot_of_age(std::int64_t age) const {
        const std::int64_t slot = head_ - 1 - age;
        return slot < 0 ? slot + capacity_ : slot;
    }
    std::int64_t age(std::int64_t slot) const {
        const std::int64_t age = head_ - 1 - slot;
        return age < 0 ? age + capacity_ : age;
    }
    std::int64_t slot(std::int64_t id) const { return slot_of_age(next_id_ - 1 - id); }
    std::int64_t id(std::int64_t slot) const { return next_id_ - 1 - age(slot); }

    // Takes the next slot, dropping its old step if it had one, and returns it.
    std::int64_t push() {
        const std::int64_t slot = head_;
        head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
        ++next_id_;
        return slot;
    }

    // The ring after so many steps.
    void restore(std::int64_t next_id) {
        next_id_ = next_id;
        head_ = next_id % capacity_;
    }

  private:
    std::int64_t capacity_;
    std::int64_t next_id_ = 0;
    std::int64_t head_ = 0;  // the slot the next step goes to: next_id mod capacity
};

}  // namespace replaylab
