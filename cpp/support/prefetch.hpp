// Asks for a cache line before it is needed; a hint, never a change of meaning.
#pragma once

namespace replaylab {

inline void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

}  // namespace replaylab
