// What the limit programs share: memory, random numbers, and the way a block of calls is timed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

constexpr int kParts = 10;  // of a timed block
constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{1} << 21;

/// Allocates zeroed memory on huge pages where the system gives them.
template <typename T>
T* allocate(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = std::aligned_alloc(kHugePage, bytes);
    if (memory == nullptr) {
        std::fprintf(stderr, "limit: no memory for %zu bytes\n", bytes);
        std::exit(1);
    }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, bytes);
    return static_cast<T*>(memory);
}

/// xoshiro256++ (Blackman & Vigna 2019), seeded by splitmix64.
class Random {
  public:
    explicit Random(std::uint64_t seed) {
        for (auto& word : state_) {
            seed += 0x9e3779b97f4a7c15u;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
            word = z ^ (z >> 31);
        }
    }

    std::uint64_t bits() {
        const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = rotate(state_[3], 45);
        return result;
    }

    /// An integer in [0, n), n < 2^32, by multiplication.
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(((bits() >> 32) * n) >> 32); }

    /// A float in [0, 1).
    float unit() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }

  private:
    static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
    std::uint64_t state_[4];
};

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::time_point start, Clock::time_point end) {
    return std::chrono::duration<double, std::nano>(end - start).count();
}

/// Times one block of calls in parts, each by `part(limit, operation, calls)`; returns the median part, so that an
/// interruption spoils one part only.
template <typename Limit>
double block(Limit& limit, const std::string& operation, int calls) {
    double times[kParts];
    for (double& time : times) time = part(limit, operation, std::max(calls / kParts, 1));
    std::sort(times, times + kParts);
    return (times[(kParts - 1) / 2] + times[kParts / 2]) / 2;
}

/// Reads "<operation> <calls>" lines and answers each with nanoseconds a call.
template <typename Limit>
void serve(Limit& limit) {
    std::string operation;
    int calls = 0;
    while (std::cin >> operation >> calls) std::cout << block(limit, operation, calls) << std::endl;
}
