#include "support/replay_lock.hpp"

#include <algorithm>

#include "support/error.hpp"

#if defined(REPLAYLAB_CHECK_LOCKS)
#include <Python.h>
#endif

namespace replaylab {

#if defined(REPLAYLAB_CHECK_LOCKS)
void ReplayLock::check_gil() {
    if (PyGILState_Check()) Py_FatalError("a lock of the core was taken with Python's lock held");
}
#endif

std::uint64_t ReplayLock::freeze() {
    if (frozen_by_another()) return 0;
    ++freezes_;
    frozen_by_ = std::this_thread::get_id();
    return forks_;
}

void ReplayLock::thaw(std::uint64_t frozen) {
    const auto held = take();
    if (frozen != forks_ || --freezes_ > 0) return;
    changed_->notify_all();
}

bool ReplayLock::frozen_elsewhere() {
    const auto held = take();
    return frozen_by_another();
}

void ReplayLock::made() {
    const auto held = take();
    if (drawing()) made_.fetch_add(1, std::memory_order_relaxed);
    changed_->notify_all();
}

void ReplayLock::enter() {
    const auto held = take();
    inside_.push_back(std::this_thread::get_id());
}

void ReplayLock::leave() {
    const auto held = take();
    const auto found = std::find(inside_.begin(), inside_.end(), std::this_thread::get_id());
    if (found != inside_.end()) inside_.erase(found);
}

// Python runs signal handlers only between bytecodes: each wait is short, and the caller handles signals in
// Python before it waits again.
template <typename Done>
bool ReplayLock::wait(Done done) {
    constexpr std::chrono::milliseconds kMoment(50);
    const auto held = take();
    return changed_->wait_for(*this, kMoment, done);
}

bool ReplayLock::wait_for_thaw() {
    return wait([this] { return !frozen_by_another(); });
}

bool ReplayLock::wait_for_draws(std::int64_t asked) {
    return wait([this, asked] {
        return made_.load(std::memory_order_relaxed) >= asked ||
               std::count(inside_.begin(), inside_.end(), std::this_thread::get_id()) > 0;
    });
}

void ReplayLock::forked() {
    // The condition variable still counts waiting threads of the parent, which this process does not have. It
    // can be neither used nor destroyed: its destructor would wait for them.
    changed_.release();
    changed_ = std::make_unique<std::condition_variable_any>();
    streams_copied_ = true;
    const auto me = std::this_thread::get_id();
    if (frozen_by_ != me) {
        freezes_ = 0;
        ++forks_;
    }
    made_.store(asked_.load());
    inside_.erase(std::remove_if(inside_.begin(), inside_.end(), [me](const auto& one) { return one != me; }),
                  inside_.end());
}

}  // namespace replaylab
