#include "support/turns.hpp"

#include <algorithm>

#include "support/error.hpp"

#if defined(REPLAYLAB_CHECK_TURNS)
#include <Python.h>
#endif

namespace replaylab {

#if defined(REPLAYLAB_CHECK_TURNS)
// With sanitizers, the rule of gil.hpp is watched.
Turns::Turn::Turn(Turns& turns) : turns_(turns) {
    if (PyGILState_Check()) Py_FatalError("a turn of the core was taken with Python's lock held");
    turns_.lock();
}
#endif

std::uint64_t Turns::freeze() {
    if (frozen_by_another()) return 0;
    ++freezes_;
    frozen_by_ = std::this_thread::get_id();
    return forks_;
}

void Turns::thaw(std::uint64_t frozen) {
    const Turn turn = take();
    if (frozen != forks_ || --freezes_ > 0) return;
    changed_->notify_all();
}

bool Turns::frozen_elsewhere() {
    const Turn turn = take();
    return frozen_by_another();
}

void Turns::made() {
    const Turn turn = take();
    if (drawing()) made_.fetch_add(1, std::memory_order_relaxed);
    changed_->notify_all();
}

void Turns::enter() {
    const Turn turn = take();
    inside_.push_back(std::this_thread::get_id());
}

void Turns::leave() {
    const Turn turn = take();
    const auto found = std::find(inside_.begin(), inside_.end(), std::this_thread::get_id());
    if (found != inside_.end()) inside_.erase(found);
}

// A signal handler of Python's runs only between bytecodes: so nobody waits here for longer than a moment,
// and the caller, in Python again, looks for signals and comes back.
template <typename Done>
bool Turns::wait(Done done) {
    constexpr std::chrono::milliseconds kMoment(50);
    lock();
    const bool over = changed_->wait_for(static_cast<ForkSafeMutex&>(*this), kMoment, done);
    unlock();
    return over;
}

bool Turns::wait_for_thaw() {
    return wait([this] { return !frozen_by_another(); });
}

bool Turns::wait_for_draws(std::int64_t asked) {
    return wait([this, asked] {
        return made_.load(std::memory_order_relaxed) >= asked ||
               std::count(inside_.begin(), inside_.end(), std::this_thread::get_id()) > 0;
    });
}

// What the parent's other threads were at is nobody's here, and nobody waits any more.
void Turns::forked() {
    // The parent's threads that waited are not here, but the condition variable counts them still; it cannot
    // be used nor destroyed any more.
    changed_.release();  // not destroyed: that would wait for those who waited
    changed_ = std::make_unique<std::condition_variable_any>();
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
