// Numbers too small to be normal count as 0 while one of these lives, in its thread.
//
// An average of Adam that no gradient feeds any more shrinks by a tenth each update until it is such a
// number, and stays one, as rounding keeps it from 0. On most processors arithmetic with it takes a hundred
// times as long.
#pragma once

#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace replaylab {

class NoDenormals {
  public:
    NoDenormals(const NoDenormals&) = delete;
    NoDenormals& operator=(const NoDenormals&) = delete;

#if defined(__x86_64__)
    NoDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }  // results, and what is read
    ~NoDenormals() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
    NoDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" ::"r"(before_ | (std::uint64_t{1} << 24)));
    }
    ~NoDenormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }

  private:
    std::uint64_t before_;
#else
    NoDenormals() {}
#endif
};

}  // namespace replaylab
