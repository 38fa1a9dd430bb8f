// The lock of a replay: one call holds it at a time. Two kinds of calls wait for longer: one that changes
// rows while another thread saves them, and one that changes what a draw depends on while draws made ahead
// are pending.
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

class ReplayLock : private ForkSafeMutex {
  public:
    // The lock is held as long as the result lives. Its owner runs no Python and never blocks.
    std::lock_guard<ReplayLock> take() { return std::lock_guard<ReplayLock>(*this); }

    void lock() {
        check_gil();
        ForkSafeMutex::lock();
    }
    using ForkSafeMutex::unlock;

    // From freeze() to thaw(), which takes what freeze() returned, rows do not change. The same thread may
    // freeze again; another thread gets 0, and waits. The first four are called with the lock held.
    std::uint64_t freeze();
    bool frozen() const { return freezes_ > 0; }
    bool frozen_by_me() const { return frozen() && frozen_by_ == std::this_thread::get_id(); }
    bool frozen_by_another() const { return frozen() && !frozen_by_me(); }
    void thaw(std::uint64_t frozen);
    bool frozen_elsewhere();

    // A draw was requested; it was made.
    void ask() { asked_.fetch_add(1, std::memory_order_relaxed); }
    void made();
    bool drawing() const {
        return asked_.load(std::memory_order_relaxed) != made_.load(std::memory_order_relaxed);
    }
    std::int64_t asked() const { return asked_.load(std::memory_order_relaxed); }

    // Whether the random streams are copies of those that another process continues to draw from, as they are
    // after a fork until they are replaced. Both are called with the lock held.
    bool streams_copied() const { return streams_copied_; }
    void set_streams_copied(bool copied) { streams_copied_ = copied; }

    // Between enter() and leave() the calling thread does not wait for draws: it makes them itself.
    void enter();
    void leave();

    // Wait for at most 50 ms, so that the caller can handle signals in between. Return true if there is
    // nothing left to wait for.
    bool wait_for_thaw();
    bool wait_for_draws(std::int64_t asked);

  private:
#if defined(REPLAYLAB_CHECK_LOCKS)
    static void check_gil();  // builds with sanitizers enforce the rule of gil.hpp
#else
    static void check_gil() {}
#endif
    void forked() override;
    template <typename Done>
    bool wait(Done done);

    std::unique_ptr<std::condition_variable_any> changed_ = std::make_unique<std::condition_variable_any>();
    std::int64_t freezes_ = 0;
    // Counts forks from 1: rows that a thread of the parent froze are not frozen in a child.
    std::uint64_t forks_ = 1;
    std::thread::id frozen_by_;
    bool streams_copied_ = false;
    std::atomic<std::int64_t> asked_{0}, made_{0};
    std::vector<std::thread::id> inside_;
};

}  // namespace replaylab
