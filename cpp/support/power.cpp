#include "support/power.hpp"

namespace replaylab {

namespace {

REPLAYLAB_INLINE void power_all(double* x, std::int64_t n, double y) {
    for (std::int64_t k = 0; k < n; ++k) x[k] = power(x[k], y);
}

REPLAYLAB_INLINE void exp2_all(double* x, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) x[k] = exp2_portable(x[k]);
}

#if defined(REPLAYLAB_X86)
REPLAYLAB_AVX2 void exp2_avx2(double* x, std::int64_t n) { exp2_all(x, n); }
REPLAYLAB_AVX2 void power_avx2(double* x, std::int64_t n, double y) { power_all(x, n, y); }
#endif

}  // namespace

void power(double* x, std::int64_t n, double y) {
#if defined(REPLAYLAB_X86)
    static const bool avx2 = has_avx2();
    if (avx2) return power_avx2(x, n, y);
#endif
    power_all(x, n, y);
}

void exp2(double* x, std::int64_t n) {
#if defined(REPLAYLAB_X86)
    static const bool avx2 = has_avx2();
    if (avx2) return exp2_avx2(x, n);
#endif
    exp2_all(x, n);
}

}  // namespace replaylab
