// A lock that a fork waits for, so that the child finds what it guards whole, and the lock free.
#pragma once

#include <mutex>

namespace replaylab {

class ForkSafeMutex {
  public:
    ForkSafeMutex();
    virtual ~ForkSafeMutex();
    ForkSafeMutex(const ForkSafeMutex&) = delete;
    ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

    // In a forked child, which has the forking thread alone: forgets the others. The lock is held.
    virtual void forked() {}

  private:
    std::mutex mutex_;
};

}  // namespace replaylab
