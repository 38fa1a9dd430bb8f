// Memory for the arrays of a batch: each begins on a 64-byte line, as JAX asks of memory that it is to share.
// The system's allocator gives large arrays back at once and takes them again at the next call, page by page,
// which costs as much as filling them; so they are kept a while.
#pragma once

#include <cstddef>

namespace replaylab {

// From this many bytes on, the memory of an array is kept for the next.
constexpr std::size_t kLargeArray = 1 << 17;

// Memory not used any more is kept up to this many bytes, over all buffers of the process.
constexpr std::size_t kKept = std::size_t{1} << 27;

// While this lives, NumPy's new arrays on this thread take their memory from here, and give it back here
// whenever they die.
class UseBatchMemory {
  public:
    UseBatchMemory();
    ~UseBatchMemory();
    UseBatchMemory(const UseBatchMemory&) = delete;
    UseBatchMemory& operator=(const UseBatchMemory&) = delete;

  private:
    void* before_;
};

}  // namespace replaylab
