// x^y for priorities and weights, from plain IEEE operations only: the C library's pow differs between
// machines in the last bits, and the same seed must give the same draws everywhere.
#pragma once

#include <cstdint>
#include <cstring>

#include "support/dispatch.hpp"

namespace replaylab {

REPLAYLAB_INLINE std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

REPLAYLAB_INLINE double double_of(std::uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// log2(x) for normal x > 0; absolute error below 1e-11. With x = m·2^e and m in [√½, √2),
// log2(m) = (2/ln 2)·artanh((m − 1)/(m + 1)), summed as its odd series.
REPLAYLAB_INLINE double log2_portable(double x) {
    constexpr double kScale = 2.885390081777926814719849362;    // 2 / ln 2
    constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdULL;  // the bits of √½
    constexpr std::uint64_t kOne = 0x3ff0000000000000ULL;       // the bits of 1
    constexpr std::uint64_t kBig = 0x4330000000000000ULL;       // the bits of 2^52
    // Moved by one minus √½, the exponent field counts up at √½ and not at 1. The small integer in it
    // becomes a double by being written under the exponent of 2^52: plain bit operations, which compilers
    // turn into vector instructions.
    const std::uint64_t biased = (bits_of(x) + (kOne - kRootHalf)) >> 52;
    const double exponent = double_of(kBig | biased) - (4503599627370496.0 + 1023.0);
    const double m = double_of(bits_of(x) - (biased << 52) + kOne);
    const double s = (m - 1.0) / (m + 1.0);
    const double q = s * s;
    const double series =
        1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13))))));
    return exponent + kScale * s * series;
}

// 2^x for |x| < 1000; relative error below 1e-11.
REPLAYLAB_INLINE double exp2_portable(double x) {
    constexpr double kShift =
        6755399441055744.0;  // 1.5·2^52: adding it leaves the nearest integer in the low bits
    const double shifted = x + kShift;
    const double f = (x - (shifted - kShift)) * 0.693147180559945309417232121458;
    const double low = 1.0 + f * (1.0 + f * (1.0 / 2 + f * (1.0 / 6 + f * (1.0 / 24))));
    const double high =
        1.0 / 120 + f * (1.0 / 720 + f * (1.0 / 5040 + f * (1.0 / 40320 + f * (1.0 / 362880))));
    const double f2 = f * f;
    return (low + f2 * f2 * f * high) * double_of((bits_of(shifted) + 1023) << 52);
}

// x^y for normal x > 0; the result is held between 2^−1000 and 2^1000.
REPLAYLAB_INLINE double power(double x, double y) {
    double exponent = y * log2_portable(x);
    exponent = exponent < -1000.0 ? -1000.0 : exponent;
    exponent = exponent > 1000.0 ? 1000.0 : exponent;
    return exp2_portable(exponent);
}

// power(x, y) of n values in place, and 2^x of n values, in whatever vector instructions this machine has:
// the same numbers.
void power(double* x, std::int64_t n, double y);
void exp2(double* x, std::int64_t n);

}  // namespace replaylab
