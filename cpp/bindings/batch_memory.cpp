#include "bindings/batch_memory.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>

#include "support/fork_safe.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#if defined(MADV_HUGEPAGE)
#define REPLAYLAB_HAS_HUGE_PAGES 1
#endif
#endif

#define PY_ARRAY_UNIQUE_SYMBOL replaylab_numpy
#define NO_IMPORT_ARRAY
#include <numpy/arrayobject.h>

namespace replaylab {

namespace {

[[maybe_unused]] constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kLine = 64;

// What lies before every array.
struct Header {
    void* block;  // as the system gave it
    std::size_t size;
};
static_assert(sizeof(Header) <= kLine);

Header& header(void* memory) { return static_cast<Header*>(memory)[-1]; }

// Blocks given back, the oldest first; one is reused only for exactly its size, as batches repeat.
class Kept {
  public:
    void* take(std::size_t size) {
        const std::lock_guard<ForkSafeMutex> lock(mutex_);
        const auto fits = [size](const Block& block) { return block.size == size; };
        const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), fits);  // the warmest
        if (found == blocks_.rend()) return nullptr;
        void* memory = found->memory;
        blocks_.erase(std::next(found).base());
        bytes_ -= size;
        return memory;
    }

    void give(void* memory, std::size_t size) {
        const std::lock_guard<ForkSafeMutex> lock(mutex_);
        blocks_.push_back(Block{memory, size});
        bytes_ += size;
        for (; bytes_ > kKept; blocks_.pop_front()) {
            bytes_ -= blocks_.front().size;
            std::free(header(blocks_.front().memory).block);
        }
    }

  private:
    struct Block {
        void* memory;
        std::size_t size;
    };

    ForkSafeMutex mutex_;
    std::deque<Block> blocks_;
    std::size_t bytes_ = 0;
};

// Never destroyed: arrays may outlive everything else.
Kept& kept() {
    static Kept& one = *new Kept;
    return one;
}

// The first line after the beginning of a block that leaves room for a header.
void* inside(void* block, std::size_t size) {
    if (block == nullptr) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    void* memory = static_cast<char*>(block) + (2 * kLine - address % kLine);
    header(memory) = Header{block, size};
    return memory;
}

// In huge pages where the system gives them, so that a batch of frames costs few address translations.
void* fresh(std::size_t size) {
    if (size > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
    const std::size_t whole = size + 2 * kLine;
#if defined(REPLAYLAB_HAS_HUGE_PAGES)
    if (size >= 2 * kHugePage) {
        void* block = nullptr;
        if (posix_memalign(&block, kHugePage, whole) != 0) return nullptr;
        madvise(block, whole, MADV_HUGEPAGE);
        return inside(block, size);
    }
#endif
    return inside(std::malloc(whole), size);
}

void* allocate(void*, std::size_t size) {
    void* memory = size < kLargeArray ? nullptr : kept().take(size);
    return memory != nullptr ? memory : fresh(size);
}

void* allocate_zeroed(void* self, std::size_t count, std::size_t size) {
    void* memory = allocate(self, count * size);  // NumPy has seen to it that this is no overflow
    return memory == nullptr ? nullptr : std::memset(memory, 0, count * size);
}

void release(void*, void* memory, std::size_t) {
    if (memory == nullptr) return;
    const Header own = header(memory);
    if (own.size >= kLargeArray)
        kept().give(memory, own.size);
    else
        std::free(own.block);
}

// Only `resize` of the caller's own array comes here.
void* reallocate(void* self, void* memory, std::size_t size) {
    void* larger = allocate(self, size);
    if (larger == nullptr || memory == nullptr) return larger;
    std::memcpy(larger, memory, std::min(size, header(memory).size));
    release(self, memory, 0);
    return larger;
}

PyDataMem_Handler handler = {
    "replaylab_batches", 1, {nullptr, allocate, allocate_zeroed, reallocate, release}};

PyObject* capsule() {
    static PyObject* one = PyCapsule_New(&handler, "mem_handler", nullptr);
    return one;
}

}  // namespace

UseBatchMemory::UseBatchMemory() : before_(PyDataMem_SetHandler(capsule())) {
    if (before_ == nullptr) nanobind::raise_python_error();
}

UseBatchMemory::~UseBatchMemory() {
    auto* before = static_cast<PyObject*>(before_);
    Py_XDECREF(PyDataMem_SetHandler(before));
    Py_DECREF(before);
}

}  // namespace replaylab
