// Seeded random streams: xoshiro256++ (Blackman & Vigna 2019), one per replica and purpose.
#pragma once

#include <array>
#include <cstdint>

namespace replaylab {

class Random {
  public:
    using State = std::array<std::uint64_t, 4>;

    explicit Random(const State& state) : state_(state) {}

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

    // Uniform in [0, 1), 53 bits.
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

    // Uniform integer in [0, n), exactly (Lemire 2019). The 128-bit product is built from 64-bit halves
    // so that every compiler gives the same numbers.
    std::uint64_t below(std::uint64_t n) {
        std::uint64_t low;
        std::uint64_t high = product(bits(), n, low);
        if (low < n) {
            const std::uint64_t threshold = (0 - n) % n;
            while (low < threshold) high = product(bits(), n, low);
        }
        return high;
    }

    State& state() { return state_; }

  private:
    static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

    static std::uint64_t product(std::uint64_t a, std::uint64_t b, std::uint64_t& low) {
#if defined(__SIZEOF_INT128__)
        __extension__ using Wide = unsigned __int128;
        const Wide wide = static_cast<Wide>(a) * b;
        low = static_cast<std::uint64_t>(wide);
        return static_cast<std::uint64_t>(wide >> 64);
#else
        const std::uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
        const std::uint64_t middle = a1 * b0 + ((a0 * b0) >> 32);
        const std::uint64_t cross = a0 * b1 + (middle & 0xffffffffu);
        low = a * b;
        return a1 * b1 + (middle >> 32) + (cross >> 32);
#endif
    }

    State state_;
};

}  // namespace replaylab
