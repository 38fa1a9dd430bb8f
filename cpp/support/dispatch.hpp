// Functions compiled for AVX2 beside the portable ones, chosen at run time, so that one build runs anywhere.
// A kernel is written once, REPLAYLAB_INLINE, and called from a portable function and from one marked
// REPLAYLAB_AVX2, into which it is inlined and compiled again. Only the choice of instructions differs, never
// the numbers: no fused multiply-add (see CMakeLists.txt) and no reordered sums.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define REPLAYLAB_INLINE __attribute__((always_inline)) inline
#else
#define REPLAYLAB_INLINE inline
#endif

// Not on Windows: asking for the processor's features needs a library of Clang's there that nothing links.
#if defined(__x86_64__) && !defined(_WIN32) && (defined(__GNUC__) || defined(__clang__))
#define REPLAYLAB_X86 1
#define REPLAYLAB_AVX2 __attribute__((target("avx2")))

namespace replaylab {

inline bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }

}  // namespace replaylab
#endif
