// The LZ4 codec and the log of packed values alone, for `test_compression.py`; with PROBE_FUZZ a program that
// feeds them damaged bytes, to be run under AddressSanitizer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#define private public  // a damaged log is made by writing into its segments
#include "storage/packed_log.hpp"
#undef private
#include "support/error.hpp"
#include "storage/lz4.hpp"

using replaylab::PackedLog;

extern "C" {

std::int64_t lz4_compress(const char* source, std::int64_t size, char* target, std::int64_t room) {
    return static_cast<std::int64_t>(replaylab::lz4::compress(source, static_cast<std::size_t>(size), target,
                                                              static_cast<std::size_t>(room)));
}
int lz4_decompress(const char* source, std::int64_t packed, char* target, std::int64_t size) {
    return replaylab::lz4::decompress(source, static_cast<std::size_t>(packed), target,
                                      static_cast<std::size_t>(size));
}

void* log_new(std::int64_t bytes, std::int64_t values) { return new PackedLog(bytes, values); }
void log_delete(void* log) { delete static_cast<PackedLog*>(log); }
std::uint64_t log_put(void* log, const char* value) { return static_cast<PackedLog*>(log)->put(value); }
void log_get(void* log, std::uint64_t ref, char* value) { static_cast<PackedLog*>(log)->get(ref, value); }
void log_release(void* log, std::uint64_t ref) { static_cast<PackedLog*>(log)->release(ref); }
void log_reserve(void* log, std::int64_t n) { static_cast<PackedLog*>(log)->reserve(n); }
void log_trim(void* log) { static_cast<PackedLog*>(log)->trim(); }
std::int64_t log_sparse(void* log) { return static_cast<PackedLog*>(log)->sparse(); }
std::int64_t log_segment_of(std::uint64_t ref) { return PackedLog::segment_of(ref); }
std::int64_t log_nbytes(void* log) { return static_cast<PackedLog*>(log)->nbytes(); }
std::int64_t log_living(void* log) { return static_cast<PackedLog*>(log)->living_; }
std::int64_t log_segment_bytes(void* log) { return static_cast<PackedLog*>(log)->segment_bytes_; }

}  // extern "C"

#if defined(PROBE_FUZZ)

#include <sanitizer/asan_interface.h>

namespace {

using Random = std::mt19937_64;

// Runs, copies from before, and noise: what exercises every branch of the codec.
std::vector<char> random_value(Random& random, std::size_t size) {
    std::vector<char> value;
    while (value.size() < size) {
        const std::size_t n = 1 + random() % (random() % 8 == 0 ? 2000 : 24);
        const std::uint64_t what = random() % 3;
        const std::size_t back =
            value.empty()
                ? 0
                : 1 + random() % (random() % 2 ? value.size() : std::min<std::size_t>(value.size(), 20));
        for (std::size_t i = 0; i < n && value.size() < size; ++i)
            value.push_back(what == 0 || back == 0 ? static_cast<char>(random() % 256)
                                                   : value[value.size() - back]);
    }
    return value;
}

void check(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

// Buffers are exactly as long as they may be, so that one byte more is seen.
void fuzz_codec(Random& random) {
    const std::size_t size = random() % (random() % 16 == 0 ? 200000 : 3000);
    const std::vector<char> value = random_value(random, size);
    std::vector<char> room(random() % 4 == 0 ? random() % (size + 1) : size + size / 255 + 16);
    const std::size_t packed = replaylab::lz4::compress(value.data(), size, room.data(), room.size());
    check(packed <= room.size(), "compress wrote too much");
    check(packed > 0 || room.size() < size + size / 255 + 16, "compress refused though there was room");
    if (packed == 0) return;
    std::unique_ptr<char[]> block(new char[packed]), back(new char[size]);
    std::memcpy(block.get(), room.data(), packed);
    check(replaylab::lz4::decompress(block.get(), packed, back.get(), size), "a good block was refused");
    check(size == 0 || std::memcmp(back.get(), value.data(), size) == 0, "other bytes came back");
    for (int k = 0; k < 20; ++k) {
        std::memcpy(block.get(), room.data(), packed);
        for (std::uint64_t hits = 1 + random() % 4; hits > 0; --hits)
            block[random() % packed] = static_cast<char>(random() % 4 == 0 ? 255 : random());
        const std::size_t given = random() % 4 == 0 ? random() % (packed + 1) : packed;
        const std::size_t wanted = random() % 4 == 0 ? random() % (size + 1) : size;
        std::unique_ptr<char[]> exact_block(new char[given]), exact(new char[wanted]);
        std::memcpy(exact_block.get(), block.get(), given);
        replaylab::lz4::decompress(exact_block.get(), given, exact.get(), wanted);
    }
}

void fuzz_log(Random& random) {
    const std::size_t bytes = 1 + random() % 3000;
    PackedLog log(static_cast<std::int64_t>(bytes), 200);
    std::vector<std::vector<char>> values;
    std::vector<PackedLog::Ref> refs;
    std::vector<char> value = random_value(random, bytes), back(bytes);
    for (int k = 0; k < 60; ++k) {
        if (random() % 8 == 0) value = random_value(random, bytes);
        value[random() % bytes] = static_cast<char>(random());
        values.push_back(value);
        refs.push_back(log.put(value.data()));
    }
    for (std::size_t k = 0; k < refs.size(); ++k) {
        log.get(refs[k], back.data());
        check(back == values[k], "the log gave another value");
    }
    const auto unused = [&](auto mark) {
        for (const PackedLog::Segment& segment : log.segments_)
            mark(segment.memory->data() + segment.used,
                 static_cast<std::size_t>(log.segment_bytes_ - segment.used));
    };
    unused([](const char* at, std::size_t n) { ASAN_POISON_MEMORY_REGION(at, n); });
    for (int k = 0; k < 200; ++k) {
        PackedLog::Segment& segment = log.segments_[random() % log.segments_.size()];
        segment.memory->data()[random() % static_cast<std::uint64_t>(segment.used)] =
            static_cast<char>(random());
        try {
            log.get(refs[random() % refs.size()] + (random() % 4 == 0 ? random() % 64 : 0), back.data());
        } catch (const replaylab::Error&) {
        }
    }
    unused([](const char* at, std::size_t n) { ASAN_UNPOISON_MEMORY_REGION(at, n); });
}

}  // namespace

int main(int, char** arguments) {
    Random random(std::strtoull(arguments[1], nullptr, 10));
    const long turns = std::strtol(arguments[2], nullptr, 10);
    for (long turn = 0; turn < turns; ++turn) {
        fuzz_codec(random);
        if (turn % 8 == 0) fuzz_log(random);
    }
    return 0;
}

#endif
