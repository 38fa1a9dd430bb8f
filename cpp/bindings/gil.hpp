// Python's lock (the GIL) beside the core's locks. One rule keeps two threads from waiting for each other:
// the GIL is let go of before a lock of the core's is taken, and nothing of Python's runs while one is held.
#pragma once

#include <Python.h>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

#include <chrono>
#include <thread>

namespace replaylab {

// Runs what may wait for the GIL. When the interpreter ends, Python before 3.14 ends a daemon thread that
// waits for it by unwinding its stack, at which a destructor or a `noexcept` ends the process. Such a thread
// waits here for that end instead, as it does from 3.14 on. What `function` has made by then is cleaned up
// without the GIL on the way here: it should own nothing.
template <typename Function>
decltype(auto) with_gil(Function&& function) {
#if defined(__GLIBCXX__)
    try {
        return function();
    } catch (const abi::__forced_unwind&) {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
#else
    return function();
#endif
}

// Lets go of the GIL while it lives.
class WithoutGil {
  public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    ~WithoutGil() {
        with_gil([this] { PyEval_RestoreThread(thread_); });
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

  private:
    PyThreadState* thread_;
};

}  // namespace replaylab
