// Memory for the large arrays of a batch. The system's allocator gives such arrays back at once and takes
// them anew at the next call, page by page, which costs as much as filling them; so they are kept a while.
#pragma once

#include <cstddef>

namespace replaylab {

// From this many bytes on, an array of a batch comes from here.
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
