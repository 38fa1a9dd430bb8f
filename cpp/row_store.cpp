#include "row_store.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "prefetch.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kChunk = 16;               // bytes moved at once
constexpr std::int64_t kBlock = 32;               // rows copied while the next block's lines are on their way
constexpr std::int64_t kPrefetch = 16 * kLine;    // past this the hardware's own streams do better

// memcpy for the small sizes rows are made of, without a library call: whole chunks, then one chunk
// that overlaps the last.
inline void copy(char* to, const char* from, std::int64_t bytes) {
    if (bytes >= kChunk) {
        if (bytes > 32 * kChunk) {
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
            return;
        }
        for (std::int64_t at = 0; at + kChunk <= bytes; at += kChunk) std::memcpy(to + at, from + at, kChunk);
        std::memcpy(to + bytes - kChunk, from + bytes - kChunk, kChunk);
    } else if (bytes >= 8) {
        std::memcpy(to, from, 8);
        std::memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        std::memcpy(to, from, 4);
        std::memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (std::int64_t i = 0; i < bytes; ++i) to[i] = from[i];
    }
}

template <std::int64_t Bytes>
void copy_exact(char* to, const char* const* rows, std::int64_t n, std::int64_t offset) {
    for (std::int64_t k = 0; k < n; ++k) std::memcpy(to + k * Bytes, rows[k] + offset, Bytes);
}

template <std::int64_t Chunks>
void copy_chunks(char* to, const char* const* rows, std::int64_t n, const Column& column) {
    const std::int64_t bytes = column.bytes;
    for (std::int64_t k = 0; k < n; ++k, to += bytes) {
        const char* from = rows[k] + column.offset;
        for (std::int64_t chunk = 0; chunk < Chunks; ++chunk)
            std::memcpy(to + chunk * kChunk, from + chunk * kChunk, kChunk);
        std::memcpy(to + bytes - kChunk, from + bytes - kChunk, kChunk);
    }
}

// One column of a block of rows; the inner loop knows its size wherever the field is small.
void copy_column(char* to, const char* const* rows, std::int64_t n, const Column& column) {
    switch (column.bytes) {
        case 1: return copy_exact<1>(to, rows, n, column.offset);
        case 2: return copy_exact<2>(to, rows, n, column.offset);
        case 4: return copy_exact<4>(to, rows, n, column.offset);
        case 8: return copy_exact<8>(to, rows, n, column.offset);
        default: break;
    }
    switch (column.bytes / kChunk) {
        case 1: return copy_chunks<1>(to, rows, n, column);
        case 2: return copy_chunks<2>(to, rows, n, column);
        case 3: return copy_chunks<3>(to, rows, n, column);
        case 4: return copy_chunks<4>(to, rows, n, column);
        case 5: return copy_chunks<5>(to, rows, n, column);
        case 6: return copy_chunks<6>(to, rows, n, column);
        default:
            for (std::int64_t k = 0; k < n; ++k)
                copy(to + k * column.bytes, rows[k] + column.offset, column.bytes);
    }
}

}  // namespace

std::int64_t RowStore::lay_out(std::vector<Column>& columns) {
    std::vector<Column*> order;
    for (Column& column : columns) order.push_back(&column);
    std::stable_sort(order.begin(), order.end(),
                     [](const Column* a, const Column* b) { return a->itemsize > b->itemsize; });
    std::int64_t offset = 0;
    std::int64_t alignment = 1;
    for (Column* column : order) {
        const std::int64_t unit = column->itemsize & -column->itemsize;  // largest power of two dividing it
        alignment = std::max(alignment, std::min<std::int64_t>(unit, 16));
        offset = (offset + unit - 1) / unit * unit;
        column->offset = offset;
        offset += column->bytes;
    }
    return std::max<std::int64_t>(alignment, (offset + alignment - 1) / alignment * alignment);
}

RowStore::RowStore(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas)
    : columns_(std::move(columns)),
      stride_(lay_out(columns_)),
      capacity_(capacity),
      replicas_(replicas),
      arena_(static_cast<std::size_t>(stride_ * capacity * replicas)) {}

void RowStore::write(char* row, const char* const* sources, std::int64_t step) const {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        const Column& column = columns_[c];
        copy(row + column.offset, sources[c] + step * column.bytes, column.bytes);
    }
}

void RowStore::gather(std::int64_t replica, const std::int64_t* slots, std::int64_t n,
                      char* const* targets) const {
    const char* base = row(replica, 0);
    const std::int64_t asked = std::min(stride_, kPrefetch);
    const char* blocks[2][kBlock];
    // Takes the addresses of a block's rows and asks for their lines; returns how many rows it has.
    const auto ask = [&](std::int64_t from, const char** rows) {
        const std::int64_t count = std::min(kBlock, n - from);
        for (std::int64_t k = 0; k < count; ++k) {
            rows[k] = base + slots[from + k] * stride_;
            for (std::int64_t at = 0; at < asked; at += kLine) prefetch(rows[k] + at);
            prefetch(rows[k] + asked - 1);
        }
        return count;
    };
    std::int64_t count = ask(0, blocks[0]);
    for (std::int64_t from = 0, turn = 0; from < n; turn = 1 - turn) {
        const std::int64_t next = from + count < n ? ask(from + count, blocks[1 - turn]) : 0;
        for (std::size_t c = 0; c < columns_.size(); ++c)
            copy_column(targets[c] + from * columns_[c].bytes, blocks[turn], count, columns_[c]);
        from += count;
        count = next;
    }
}

}  // namespace replaylab
