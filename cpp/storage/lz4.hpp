// The LZ4 block format: byte-oriented compression that is undone at several gigabytes a second. The format is
// public and fixed (lz4_Block_format.md), so any LZ4 library reads what this writes, and the other way round.
#pragma once

#include <cstddef>

namespace replaylab::lz4 {

// Compresses `size` bytes into at most `room`; returns the bytes written, 0 if they do not fit.
std::size_t compress(const char* source, std::size_t size, char* target, std::size_t room);

// Undoes it: true if the `packed` bytes are a block of exactly `size` bytes. Reads and writes nothing outside
// the two ranges, whatever the bytes are; where it returns false, the target holds anything.
bool decompress(const char* source, std::size_t packed, char* target, std::size_t size);

}  // namespace replaylab::lz4
