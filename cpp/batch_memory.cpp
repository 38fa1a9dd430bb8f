#include "batch_memory.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

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

// Blocks given back, the oldest first; one is reused only for exactly its size, as batches repeat.
class Kept {
  public:
    void* take(std::size_t size) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto fits = [size](const Block& block) { return block.size == size; };
        const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), fits);  // the warmest
        if (found == blocks_.rend()) return nullptr;
        void* memory = found->memory;
        blocks_.erase(std::next(found).base());
        bytes_ -= size;
        return memory;
    }

    void give(void* memory, std::size_t size) {
        const std::lock_guard<std::mutex> lock(mutex_);
        blocks_.push_back(Block{memory, size});
        for (bytes_ += size; bytes_ > kKept; blocks_.pop_front()) {
            bytes_ -= blocks_.front().size;
            std::free(blocks_.front().memory);
        }
    }

  private:
    struct Block {
        void* memory;
        std::size_t size;
    };
    std::mutex mutex_;
    std::deque<Block> blocks_;
    std::size_t bytes_ = 0;
};

// Never destroyed: arrays may outlive everything else.
Kept& kept() {
    static Kept& one = *new Kept;
    return one;
}

// In huge pages where the system gives them, so that a batch of frames costs few address translations.
void* fresh(std::size_t size) {
#if defined(REPLAYLAB_HAS_HUGE_PAGES)
    if (size >= 2 * kHugePage) {
        void* memory = nullptr;
        if (posix_memalign(&memory, kHugePage, size) != 0) return nullptr;
        madvise(memory, size, MADV_HUGEPAGE);
        return memory;
    }
#endif
    return std::malloc(size);
}

void* allocate(void*, std::size_t size) {
    void* memory = kept().take(size);
    return memory != nullptr ? memory : fresh(size);
}

void* allocate_zeroed(void*, std::size_t count, std::size_t size) { return std::calloc(count, size); }

// Only `resize` of the caller's own array comes here.
void* reallocate(void*, void* memory, std::size_t size) { return std::realloc(memory, size); }

void release(void*, void* memory, std::size_t size) {
    if (memory != nullptr && size >= kLargeArray)
        kept().give(memory, size);
    else
        std::free(memory);
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
