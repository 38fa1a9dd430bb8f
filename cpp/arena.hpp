// Zeroed memory for rows, in huge pages where the system gives them: a random row then costs one
// address translation that hits, not one that misses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
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
        base_ = std::calloc(bytes_ + kLine, 1);
        if (base_ == nullptr) throw std::bad_alloc();
        auto address = reinterpret_cast<std::size_t>(base_);
        data_ = reinterpret_cast<char*>((address + kLine - 1) / kLine * kLine);
#endif
    }

    ~Arena() {
#if defined(REPLAYLAB_HAS_MMAP)
        munmap(base_, mapped_);
#else
        std::free(base_);
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

}  // namespace replaylab
