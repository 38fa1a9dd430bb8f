#include "storage/row_store.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "support/prefetch.hpp"
#include "support/stream.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kChunk = 16;  // bytes moved at once
constexpr std::int64_t kBlock = 32;  // rows moved while the next block's lines are on their way
constexpr int kMostTidied = 64;      // segments of a log in one call
constexpr unsigned kKnown = 11;      // values unpacked in a turn that are remembered, as a power of two
constexpr std::int64_t kPrefetch = 16 * kLine;  // past this the hardware's own streams do better

// A column of a block of rows moves between the rows and the caller's packed values, value places[k] for
// row k: into the rows for Scatter, out of them for Gather.
struct Scatter {
    static void move(char* row, char* packed, std::size_t bytes) { stream(row, packed, bytes); }
};
struct Gather {
    static void move(char* row, char* packed, std::size_t bytes) { std::memcpy(packed, row, bytes); }
};

template <typename Direction, std::int64_t Bytes>
void move_exact(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                std::int64_t offset) {
    for (std::int64_t k = 0; k < n; ++k) Direction::move(rows[k] + offset, packed + places[k] * Bytes, Bytes);
}

// Whole chunks, then one chunk that overlaps the last: small values without a library call.
template <typename Direction, std::int64_t Chunks>
void move_chunks(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                 const Column& column) {
    const std::int64_t bytes = column.bytes;
    for (std::int64_t k = 0; k < n; ++k) {
        char* in_row = rows[k] + column.offset;
        char* value = packed + places[k] * bytes;
        for (std::int64_t chunk = 0; chunk < Chunks; ++chunk)
            Direction::move(in_row + chunk * kChunk, value + chunk * kChunk, kChunk);
        Direction::move(in_row + bytes - kChunk, value + bytes - kChunk, kChunk);
    }
}

// The inner loop knows its size wherever the field is small.
template <typename Direction>
void move_column(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                 const Column& column) {
    switch (column.bytes) {
        case 1:
            return move_exact<Direction, 1>(rows, packed, places, n, column.offset);
        case 2:
            return move_exact<Direction, 2>(rows, packed, places, n, column.offset);
        case 4:
            return move_exact<Direction, 4>(rows, packed, places, n, column.offset);
        case 8:
            return move_exact<Direction, 8>(rows, packed, places, n, column.offset);
        default:
            break;
    }
    switch (column.bytes / kChunk) {
        case 1:
            return move_chunks<Direction, 1>(rows, packed, places, n, column);
        case 2:
            return move_chunks<Direction, 2>(rows, packed, places, n, column);
        case 3:
            return move_chunks<Direction, 3>(rows, packed, places, n, column);
        case 4:
            return move_chunks<Direction, 4>(rows, packed, places, n, column);
        case 5:
            return move_chunks<Direction, 5>(rows, packed, places, n, column);
        case 6:
            return move_chunks<Direction, 6>(rows, packed, places, n, column);
        default:
            for (std::int64_t k = 0; k < n; ++k)
                Direction::move(rows[k] + column.offset, packed + places[k] * column.bytes,
                                static_cast<std::size_t>(column.bytes));
    }
}

// The same into a column whose rows hold references into a log.
void pack_column(PackedLog& log, char* const* rows, const char* packed, const std::int64_t* places,
                 std::int64_t n, const Column& column) {
    for (std::int64_t k = 0; k < n; ++k) {
        PackedLog::Ref old;
        std::memcpy(&old, rows[k] + column.offset, sizeof old);
        const PackedLog::Ref ref = log.put(packed + places[k] * column.bytes);
        std::memcpy(rows[k] + column.offset, &ref, sizeof ref);
        log.release(old);
    }
}

// Bytes of a column in the row, and the width they are aligned by.
std::int64_t bytes_in_row(const Column& column) {
    return column.compressed ? static_cast<std::int64_t>(sizeof(PackedLog::Ref)) : column.bytes;
}
std::int64_t width_in_row(const Column& column) {
    return column.compressed ? static_cast<std::int64_t>(sizeof(PackedLog::Ref)) : column.itemsize;
}

template <typename Number>
bool is_nonzero(const char* value) {
    Number number;
    std::memcpy(&number, value, sizeof number);
    return number != Number{0};
}

}  // namespace

bool is_set(const Column& column, const char* value) {
    if (column.floating && column.bytes == sizeof(float)) return is_nonzero<float>(value);
    if (column.floating && column.bytes == sizeof(double)) return is_nonzero<double>(value);
    if (column.floating && column.bytes == sizeof(long double)) return is_nonzero<long double>(value);
    if (column.bytes == 2 && column.floating) {  // half precision: all but the sign
        std::uint16_t bits;
        std::memcpy(&bits, value, sizeof bits);
        return (bits & 0x7fff) != 0;
    }
    return std::any_of(value, value + column.bytes, [](char byte) { return byte != 0; });
}

std::int64_t RowStore::lay_out(std::vector<Column>& columns) {
    std::vector<Column*> order;
    for (Column& column : columns) order.push_back(&column);
    std::stable_sort(order.begin(), order.end(),
                     [](const Column* a, const Column* b) { return width_in_row(*a) > width_in_row(*b); });
    std::int64_t offset = 0;
    std::int64_t alignment = 1;
    for (Column* column : order) {
        const std::int64_t unit =
            width_in_row(*column) & -width_in_row(*column);  // largest power of two dividing it
        alignment = std::max(alignment, std::min<std::int64_t>(unit, 16));
        offset = (offset + unit - 1) / unit * unit;
        column->offset = offset;
        offset += bytes_in_row(*column);
    }
    return (offset + alignment - 1) / alignment * alignment;
}

RowStore::RowStore(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas,
                   std::int64_t closing_rows, const MappedRows* outside)
    : columns_(std::move(columns)),
      stride_(lay_out(columns_)),
      capacity_(capacity),
      replicas_(replicas),
      rows_(capacity + 1 + closing_rows),
      arena_(outside != nullptr ? 0 : static_cast<std::size_t>(stride_ * rows_ * replicas)),
      base_(outside != nullptr ? outside->rows(0) : arena_.data()),
      replica_bytes_(outside != nullptr ? outside->replica_bytes() : rows_ * stride_) {
    if (outside != nullptr) {
        ask_first_ = outside->exceeds_memory();
        outside_.assign(static_cast<std::size_t>(replicas * rows_),
                        static_cast<std::uint32_t>(outside->zero_row()));
    }
    for (std::int64_t r = 0; r < replicas; ++r) {
        for (const Column& column : columns_) {
            logs_.push_back(column.compressed ? std::make_unique<PackedLog>(column.bytes, capacity)
                                              : nullptr);
            compressed_ = compressed_ || column.compressed;
        }
    }
    if (compressed_) unpacked_.resize(std::size_t{1} << kKnown);
}

void RowStore::fill(char* row, std::int64_t place, const char* const* sources) const {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        const auto bytes = static_cast<std::size_t>(columns_[c].bytes);
        stream(row + columns_[c].offset, sources[c] + place * columns_[c].bytes, bytes);
    }
}

// Block by block: while one block's columns are moved, the next one's lines are asked for.
template <typename Direction>
void RowStore::move(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                    std::int64_t n, char* const* packed) const {
    char* base = base_ + replica * replica_bytes_;
    // Only the part of a row that holds the columns wanted.
    std::int64_t first = stride_, last = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (packed[c] == nullptr) continue;
        first = std::min(first, columns_[c].offset);
        last = std::max(last, columns_[c].offset + bytes_in_row(columns_[c]));
    }
    if (last == 0) return;  // none
    last = std::min(last, first + kPrefetch);
    char* blocks[2][kBlock];
    const auto ask = [&](std::int64_t from, char** rows) {
        const std::int64_t count = std::min(kBlock, n - from);
        for (std::int64_t k = 0; k < count; ++k) {
            rows[k] = base + place(replica, slots[from + k]) * stride_;
            for (std::int64_t at = first; at < last; at += kLine) prefetch(rows[k] + at);
            prefetch(rows[k] + last - 1);
        }
        return count;
    };
    for (std::int64_t k = 0; ask_first_ && k < n; ++k) MappedRows::ask_for(row(replica, slots[k]), stride_);
    std::int64_t count = ask(0, blocks[0]);
    for (std::int64_t from = 0, turn = 0; from < n; turn = 1 - turn) {
        const std::int64_t next = from + count < n ? ask(from + count, blocks[1 - turn]) : 0;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            if (packed[c] == nullptr) continue;
            if (columns_[c].compressed) {
                if constexpr (std::is_same_v<Direction, Gather>)
                    unpack_column(replica, c, blocks[turn], packed[c], places + from, count);
                else
                    pack_column(log(replica, c), blocks[turn], packed[c], places + from, count, columns_[c]);
                continue;
            }
            move_column<Direction>(blocks[turn], packed[c], places + from, count, columns_[c]);
        }
        from += count;
        count = next;
    }
}

void RowStore::scatter(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                       std::int64_t n, const char* const* sources) {
    // One function moves both ways, so it takes pointers it may write to; Scatter only reads through them.
    move<Scatter>(replica, slots, places, n, const_cast<char* const*>(sources));
}

void RowStore::gather(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                      std::int64_t n, char* const* targets) const {
    move<Gather>(replica, slots, places, n, targets);
}

// What this turn has unpacked already (frames in the stacks of both obs and next_obs) is copied from there.
void RowStore::unpack_column(std::int64_t replica, std::size_t c, char* const* rows, char* packed,
                             const std::int64_t* places, std::int64_t n) const {
    PackedLog& in = log(replica, c);
    PackedLog::Ref refs[kBlock];
    for (std::int64_t k = 0; k < n; ++k) {
        std::memcpy(&refs[k], rows[k] + columns_[c].offset, sizeof(PackedLog::Ref));
        in.prefetch(refs[k]);
    }
    for (std::int64_t k = 0; k < n; ++k) {
        char* const out = packed + places[k] * columns_[c].bytes;
        Unpacked& known =
            unpacked_[static_cast<std::size_t>((refs[k] * 0x9E3779B97F4A7C15u) >> (64 - kKnown))];
        if (known.turn == turn_ && known.log == &in && known.ref == refs[k]) {
            std::memcpy(out, known.value, static_cast<std::size_t>(columns_[c].bytes));
        } else {
            in.get(refs[k], out);
            known = Unpacked{turn_, &in, refs[k], out};
        }
    }
}

const char* RowStore::value(std::int64_t replica, std::int64_t index, std::size_t column,
                            std::vector<char>& scratch) const {
    if (!columns_[column].compressed) return row(replica, index) + columns_[column].offset;
    scratch.resize(static_cast<std::size_t>(columns_[column].bytes));
    log(replica, column).get(ref(replica, index, column), scratch.data());
    return scratch.data();
}

PackedLog::Ref RowStore::ref(std::int64_t replica, std::int64_t index, std::size_t column) const {
    PackedLog::Ref ref;
    std::memcpy(&ref, row(replica, index) + columns_[column].offset, sizeof ref);
    return ref;
}

void RowStore::set_ref(std::int64_t replica, std::int64_t index, std::size_t column,
                       PackedLog::Ref ref) const {
    std::memcpy(row(replica, index) + columns_[column].offset, &ref, sizeof ref);
}

void RowStore::release(std::int64_t replica, std::int64_t index) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (!columns_[c].compressed) continue;
        log(replica, c).release(ref(replica, index, c));
        set_ref(replica, index, c, 0);
    }
}

void RowStore::reserve(std::int64_t replica, std::int64_t n) {
    for (std::size_t c = 0; c < columns_.size(); ++c)
        if (columns_[c].compressed) log(replica, c).reserve(n);
}

// Where values are not let go of in the order they came (a reservoir), segments thin out but never empty: the
// thinnest ones' values are then put again.
void RowStore::tidy(std::int64_t replica) {
    std::vector<char> scratch;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (!columns_[c].compressed) continue;
        PackedLog& in = log(replica, c);
        std::int64_t segment = in.sparse();
        for (int turn = 0; segment >= 0 && turn < kMostTidied; ++turn, segment = in.sparse()) {
            for (std::int64_t index = 0; index < rows_; ++index) {
                const PackedLog::Ref old = ref(replica, index, c);
                if (PackedLog::segment_of(old) != segment) continue;
                set_ref(replica, index, c, in.put(value(replica, index, c, scratch)));
                in.release(old);
                in.moved();
            }
        }
        in.trim();
    }
}

void RowStore::visit(std::int64_t replica, StateVisitor& state) {
    for (std::size_t c = 0; c < columns_.size(); ++c)
        if (columns_[c].compressed) log(replica, c).visit("packed." + columns_[c].name, state);
}

void RowStore::settle() {
    for (std::size_t i = 0; i < logs_.size(); ++i) {
        if (logs_[i] == nullptr) continue;
        const auto replica = static_cast<std::int64_t>(i / columns_.size());
        for (std::int64_t index = 0; index < rows_; ++index)
            logs_[i]->hold(ref(replica, index, i % columns_.size()));
        logs_[i]->settle();
    }
}

std::int64_t RowStore::packed_nbytes() const {
    auto bytes = static_cast<std::int64_t>(unpacked_.size() * sizeof(Unpacked));
    for (const auto& log : logs_) bytes += log != nullptr ? log->nbytes() : 0;
    return bytes;
}

}  // namespace replaylab
