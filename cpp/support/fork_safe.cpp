#include "support/fork_safe.hpp"

#include <algorithm>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace replaylab {

namespace {

struct Registry {
    std::mutex mutex;
    std::vector<ForkSafeMutex*> all;
};

// Never destroyed: at the end of the process threads may still come by.
Registry& registry() {
    static Registry& one = *new Registry;
    return one;
}

#if !defined(_WIN32)
// A thread takes one of these locks at a time and waits for nothing while it holds it: so a fork may wait for
// all.
void before_fork() {
    registry().mutex.lock();
    for (ForkSafeMutex* one : registry().all) one->lock();
}

void after_fork() {
    for (ForkSafeMutex* one : registry().all) one->unlock();
    registry().mutex.unlock();
}

void after_fork_in_child() {
    for (ForkSafeMutex* one : registry().all) one->forked();
    after_fork();
}

const int watching_forks = pthread_atfork(before_fork, after_fork, after_fork_in_child);
#endif

}  // namespace

ForkSafeMutex::ForkSafeMutex() {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().all.push_back(this);
}

ForkSafeMutex::~ForkSafeMutex() {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    auto& all = registry().all;
    all.erase(std::find(all.begin(), all.end(), this));
}

}  // namespace replaylab
