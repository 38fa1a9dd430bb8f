// x^y for priorities and weights, from plain IEEE operations only: the C library's pow differs between
// machines in the last bits, and the same seed must give the same draws everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace replaylab {

// log2(x) for normal x > 0; absolute error below 1e-12. With x = m·2^e and m in [√½, √2),
// log2(m) = (2/ln 2)·artanh((m − 1)/(m + 1)), summed as its odd series.
inline double log2_portable(double x) {
    constexpr double kScale = 2.885390081777926814719849362;  // 2 / ln 2
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    // Subtracting the bits of √½ makes the exponent field flip at √½ instead of at 1.
    const std::int64_t exponent = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcdULL) >> 52;
    bits -= static_cast<std::uint64_t>(exponent) << 52;
    double m;
    std::memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0);
    const double q = s * s;
    const double series =
        1.0 +
        q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13))))));
    return static_cast<double>(exponent) + kScale * s * series;
}

// 2^x for |x| < 1000; relative error below 1e-11.
inline double exp2_portable(double x) {
    constexpr double kShift = 6755399441055744.0;  // 1.5·2^52: adding it rounds to an integer
    const double rounded = (x + kShift) - kShift;
    const double f = (x - rounded) * 0.693147180559945309417232121458;
    const double series =
        1.0 +
        f * (1.0 + f * (1.0 / 2 + f * (1.0 / 6 + f * (1.0 / 24 + f * (1.0 / 120 + f * (1.0 / 720 +
        f * (1.0 / 5040 + f * (1.0 / 40320 + f * (1.0 / 362880)))))))));
    const std::uint64_t bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded) + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

// x^y for normal x > 0; the result is held between 2^−1000 and 2^1000.
inline double power(double x, double y) {
    const double exponent = y * log2_portable(x);
    return exp2_portable(exponent < -1000.0 ? -1000.0 : exponent > 1000.0 ? 1000.0 : exponent);
}

}  // namespace replaylab
