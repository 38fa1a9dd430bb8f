// Handles of a replay: the replay that succeeded it, frozen rows, and a draw that is pending.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "bindings/gil.hpp"
#include "replay/replay.hpp"

namespace replaylab {

namespace nb = nanobind;

// The replay that receives steps after this one was replaced; owns it. None: it was not replaced.
class Successor {
  public:
    Successor() = default;
    Successor(const Successor&) = delete;
    Successor& operator=(const Successor&) = delete;
    ~Successor() { Py_XDECREF(replay_.load()); }

    void take(nb::object replay) {
        if (get() == nullptr) replay_.store(replay.release().ptr(), std::memory_order_release);
    }
    PyObject* get() const { return replay_.load(std::memory_order_acquire); }

  private:
    std::atomic<PyObject*> replay_{nullptr};
};

// Freezes the rows until end() or destruction, and holds the rest of the state from when it began.
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
            replay->lock().thaw(token_);
        }
    }

    nb::dict state;

  private:
    nb::object owner_;  // keeps the replay
    Replay* replay_;
    std::uint64_t token_;
};

// A draw that was requested, until it is made or dropped.
class PendingDraw {
  public:
    PendingDraw(nb::object owner, Replay& replay) : owner_(std::move(owner)), replay_(&replay) {
        replay_->lock().ask();
    }
    PendingDraw(PendingDraw&& other) noexcept
        : owner_(std::move(other.owner_)), replay_(std::exchange(other.replay_, nullptr)) {}
    ~PendingDraw() { made(); }

    void made() {
        if (Replay* replay = std::exchange(replay_, nullptr)) {
            const WithoutGil no_gil;
            replay->lock().made();
        }
    }

  private:
    nb::object owner_;  // keeps the replay
    Replay* replay_;
};

}  // namespace replaylab
