// Whose turn it is in a replay: one call's at a time; and which calls wait for more than that: those that
// would change rows while another thread saves them, and all that a draw depends on while draws asked for
// before are still to be made ahead.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/fork_safe.hpp"

namespace replaylab {

class Turns : private ForkSafeMutex {
  public:
    // The turn of one call, while what this returns lives. Its holder runs no Python and waits for nothing.
    class Turn;
    Turn take();

    // Between the first and thaw(), which takes what that returned, rows stay as they are. The thread that
    // has them stay may have so again; another gets 0, and waits. The first four are called in a turn.
    std::uint64_t freeze();
    bool frozen() const { return freezes_ > 0; }
    bool frozen_by_me() const { return frozen() && frozen_by_ == std::this_thread::get_id(); }
    bool frozen_by_another() const { return frozen() && !frozen_by_me(); }
    void thaw(std::uint64_t frozen);
    bool frozen_elsewhere();

    // A draw was asked for; it was made.
    void ask() { asked_.fetch_add(1, std::memory_order_relaxed); }
    void made();
    bool drawing() const {
        return asked_.load(std::memory_order_relaxed) != made_.load(std::memory_order_relaxed);
    }
    std::int64_t asked() const { return asked_.load(std::memory_order_relaxed); }

    // Between these two the calling thread waits for no draws: it makes them, or one that does waits for it.
    void enter();
    void leave();

    // These wait a moment, so that the caller can look for signals in between; true: there is nothing to wait
    // for.
    bool wait_for_thaw();
    bool wait_for_draws(std::int64_t asked);

  private:
    void forked() override;
    template <typename Done>
    bool wait(Done done);

    std::unique_ptr<std::condition_variable_any> changed_ = std::make_unique<std::condition_variable_any>();
    std::int64_t freezes_ = 0;
    std::uint64_t forks_ =
        1;  // of this process, from the first on: what a parent's thread froze is free in a child
    std::thread::id frozen_by_;
    std::atomic<std::int64_t> asked_{0}, made_{0};
    std::vector<std::thread::id> inside_;
};

class Turns::Turn {
  public:
    explicit Turn(Turns& turns);
    ~Turn() { turns_.unlock(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

  private:
    Turns& turns_;
};

inline Turns::Turn Turns::take() { return Turn(*this); }

#if !defined(REPLAYLAB_CHECK_TURNS)
inline Turns::Turn::Turn(Turns& turns) : turns_(turns) { turns_.lock(); }
#endif

}  // namespace replaylab
