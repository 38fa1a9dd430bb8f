// What a file of rows looks like; docs/guides/storage.md describes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "storage/mapped_rows.hpp"

namespace replaylab {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kOpening = kPage - 1;  // the byte locked while a file is opened; places are below it
constexpr std::int64_t kNone = -1;
constexpr std::int64_t kLongestDeclaration = kPage * kPage;
constexpr std::int64_t kLaps = (std::int64_t{1} << 32) - 2;  // that a word of the log can count
constexpr std::uint32_t kEnds = 1u << 31;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "words in shared memory must be plain words");

// All numbers are little-endian.
struct MappedRows::Header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t byte_order;
    std::int64_t capacity, headroom, writers, replicas, num_envs, stride;
    std::int64_t declaration_bytes;  // of the text after this page
    std::int64_t first_section, section_bytes, file_bytes;
    char identity[32];
    char boot[40];     // the machine's run in which steps were published that no flush followed
    Number ready;      // 1 once all of it was made
    Number unflushed;  // 1 while there are such steps
};

struct MappedRows::Mark {
    Number claim;  // see claimed() and was()
    std::atomic<std::uint32_t> stream, step;
};

struct MappedRows::Record {
    Number row;      // owned by this place
    Number id, old;  // while it publishes: the id its row is to get, and the row that it is to get for it
    char unused[kLine - 3 * 8];
};

// A word of the log: the lap in which its id came, from 1 on, and the row. Lap 0: no step yet.
inline std::uint64_t word_of(std::uint64_t lap, std::int64_t row) {
    return lap << 32 | static_cast<std::uint64_t>(row);
}
inline std::uint64_t lap_of(std::uint64_t word) { return word >> 32; }
inline std::int64_t row_of(std::uint64_t word) { return static_cast<std::int64_t>(word & 0xffffffffu); }

// A row's claim: its writer means it to be step id. Once that step has left the log: it was.
inline std::int64_t claimed(std::int64_t id) { return -1 - id; }
inline std::int64_t was(std::int64_t id) { return 1 + id; }

}  // namespace replaylab
