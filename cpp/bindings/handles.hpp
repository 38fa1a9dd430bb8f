// Handles of a replay for a while: rows that stay as they are, a draw asked for, what took its place.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "bindings/gil.hpp"
#include "replay/replay.hpp"

namespace replaylab {

namespace nb = nanobind;

// What takes steps in a replay's place once it was replaced: nothing, or a replay, which it owns.
class Heir {
  public:
    Heir() = default;
    Heir(const Heir&) = delete;
    Heir& operator=(const Heir&) = delete;
    ~Heir() { Py_XDECREF(replay_.load()); }

    void take(nb::object replay) {
        if (get() == nullptr) replay_.store(replay.release().ptr(), std::memory_order_release);
    }
    PyObject* get() const { return replay_.load(std::memory_order_acquire); }

  private:
    std::atomic<PyObject*> replay_{nullptr};
};

// Rows that stay as they are until this ends, or dies; and all else as it was when it began.
class Frozen {
  public:
    Frozen(nb::object owner, Replay& replay, std::uint64_t token, nb::dict state)
        : state(std::move(state)), owner_(std::move(owner)), replay_(&replay), token_(token) {}
    Frozen(Frozen&& other) noexcept
        : state(std::move(other.state)),
          owner_(std::move(other.owner_)),
          replay_(std::exchange(other.replay_, nullptr)),
          token_(other.token_) {}
    ~Frozen() { end(); }

    void end() {
        if (Replay* replay = std::exchange(replay_, nullptr)) {
            const WithoutGil no_gil;
            replay->turns().thaw(token_);
        }
    }

    nb::dict state;

  private:
    nb::object owner_;  // keeps the replay
    Replay* replay_;
    std::uint64_t token_;
};

// A draw that was asked for, until it is made, or forgotten.
class Asked {
  public:
    Asked(nb::object owner, Replay& replay) : owner_(std::move(owner)), replay_(&replay) {
        replay_->turns().ask();
    }
    Asked(Asked&& other) noexcept
        : owner_(std::move(other.owner_)), replay_(std::exchange(other.replay_, nullptr)) {}
    ~Asked() { made(); }

    void made() {
        if (Replay* replay = std::exchange(replay_, nullptr)) {
            const WithoutGil no_gil;
            replay->turns().made();
        }
    }

  private:
    nb::object owner_;  // keeps the replay
    Replay* replay_;
};

}  // namespace replaylab
