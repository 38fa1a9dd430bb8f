// Zeroed memory for rows, in huge pages where the system gives them: a random row then costs one
// address translation that hits, not one that misses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

// REPLAYLAB_PLAIN_MEMORY: from malloc instead, where a sanitizer sees what goes past its ends.
#if (defined(__unix__) || defined(__APPLE__)) && !defined(REPLAYLAB_PLAIN_MEMORY)
#include <sys/mman.h>
#define REPLAYLAB_HAS_MMAP 1
#endif

namespace replaylab {

class Arena {
  public:
    explicit Arena(std::size_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
#if defined(REPLAYLAB_HAS_MMAP)
        // Over-allocate so that the part used starts on a huge-page boundary.
        mapped_ = bytes_ + (bytes_ >= kHugePage ? kHugePage : 0);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
        flags |= MAP_NORESERVE;  // pages that are never used are never counted
#endif
        base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        auto address = reinterpret_cast<std::size_t>(base_);
        if (bytes_ >= kHugePage) address = (address + kHugePage - 1) / kHugePage * kHugePage;
        data_ = reinterpret_cast<char*>(address);
#if defined(MADV_HUGEPAGE)
        if (bytes_ >= kHugePage) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
#else
        base_ = ::operator new(bytes_, std::align_val_t{kLine});
        data_ = static_cast<char*>(std::memset(base_, 0, bytes_));
#endif
    }

    ~Arena() {
#if defined(REPLAYLAB_HAS_MMAP)
        munmap(base_, mapped_);
#else
        ::operator delete(base_, std::align_val_t{kLine});
#endif
    }

    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    char* data() const { return data_; }

  private:
    static constexpr std::size_t kHugePage = std::size_t{1} << 21;
    [[maybe_unused]] static constexpr std::size_t kLine = 64;

    std::size_t bytes_;
    void* base_ = nullptr;
    [[maybe_unused]] std::size_t mapped_ = 0;
    char* data_ = nullptr;
};

// n zeros by slot, in huge pages where the system gives them: what is looked up at random beside the rows.
template <typename Value = std::uint32_t>
std::vector<Value> zeros_by_slot(std::int64_t n) {
    std::vector<Value> zeros;
    zeros.reserve(static_cast<std::size_t>(n));
#if defined(REPLAYLAB_HAS_MMAP) && defined(MADV_HUGEPAGE)
    constexpr std::size_t kHugePage = std::size_t{1} << 21;
    const auto begin = reinterpret_cast<std::size_t>(zeros.data());
    const std::size_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
    const std::size_t last = (begin + static_cast<std::size_t>(n) * sizeof(Value)) / kHugePage * kHugePage;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
    zeros.resize(static_cast<std::size_t>(n));
    return zeros;
}

}  // namespace replaylab
