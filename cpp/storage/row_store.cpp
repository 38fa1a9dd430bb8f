#include "storage/row_store.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "support/prefetch.hpp"
#include "support/stream.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kChunk = 16;  // bytes moved at once
// Rows moved at once, and blocks of them whose lines are on their way. Measured: blocks of 8, four ahead,
// take a quarter longer.
constexpr std::int64_t kBlock = 32, kAhead = 2;
constexpr std::int64_t kFilled = 64;  // rows filled at once
constexpr int kMostTidied = 64;       // segments of a log in one call
constexpr unsigned kKnown = 11;       // values unpacked in a turn that are remembered, as a power of two

// A column of a block of rows moves between the rows and the caller's packed values, value places[k] for
// row k: into the rows for Scatter, out of them for Gather.
struct Scatter {
    static void move(char* row, char* packed, std::size_t bytes) { stream(row, packed, bytes); }
};
struct Gather {
    static void move(char* row, char* packed, std::size_t bytes) { std::memcpy(packed, row, bytes); }
};

// Listed: value k's place is places[k]; else it is k.
template <typename Direction, bool Listed>
struct Move {
    static char* value(char* packed, const std::int64_t* places, std::int64_t k, std::int64_t bytes) {
        return packed + (Listed ? places[k] : k) * bytes;
    }

    template <std::int64_t Bytes>
    static void exact(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                      const Column& column) {
        const std::int64_t offset = column.offset;
        for (std::int64_t k = 0; k < n; ++k)
            Direction::move(rows[k] + offset, value(packed, places, k, Bytes), Bytes);
    }

    // Whole chunks, then one chunk that overlaps the last: small values without a library call.
    template <std::int64_t Chunks>
    static void chunks(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                       const Column& column) {
        const std::int64_t bytes = column.bytes, offset = column.offset;
        for (std::int64_t k = 0; k < n; ++k) {
            char* in_row = rows[k] + offset;
            char* out = value(packed, places, k, bytes);
            for (std::int64_t chunk = 0; chunk < Chunks; ++chunk)
                Direction::move(in_row + chunk * kChunk, out + chunk * kChunk, kChunk);
            Direction::move(in_row + bytes - kChunk, out + bytes - kChunk, kChunk);
        }
    }

    static void any(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                    const Column& column) {
        for (std::int64_t k = 0; k < n; ++k)
            Direction::move(rows[k] + column.offset, value(packed, places, k, column.bytes),
                            static_cast<std::size_t>(column.bytes));
    }

    // The function for a column: it knows the size wherever that is small.
    static MoveColumn* of(const Column& column) {
        constexpr MoveColumn* kExact[] = {any, exact<1>, exact<2>, any, exact<4>, any,      any,
                                          any, exact<8>, any,      any, any,      exact<12>};
        constexpr MoveColumn* kChunks[] = {any,       chunks<1>, chunks<2>, chunks<3>,
                                           chunks<4>, chunks<5>, chunks<6>};
        if (column.bytes < static_cast<std::int64_t>(std::size(kExact))) return kExact[column.bytes];
        if (column.bytes / kChunk < static_cast<std::int64_t>(std::size(kChunks)))
            return kChunks[column.bytes / kChunk];
        return any;
    }
};

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
Number read(const char* value) {
    Number number;
    std::memcpy(&number, value, sizeof number);
    return number;
}
template <typename Number>
bool is_nonzero(const char* value) {
    return read<Number>(value) != Number{0};
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

double number_of(const Column& column, const char* value) {
    if (column.bytes == 4) return column.floating ? read<float>(value) : read<std::int32_t>(value);
    return column.floating ? read<double>(value) : static_cast<double>(read<std::int64_t>(value));
}

void RowPart::cover(const Column& column) {
    begin = std::min(begin, column.offset);
    end = std::max(end, column.offset + bytes_in_row(column));
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
    for (const Column& column : columns_) fillers_.push_back(Move<Scatter, false>::of(column));
}

void RowStore::fill(char* row, std::int64_t n, std::int64_t place, const char* const* sources) const {
    char* rows[kFilled];
    for (std::int64_t from = 0; from < n; from += kFilled) {
        const std::int64_t count = std::min(kFilled, n - from);
        for (std::int64_t k = 0; k < count; ++k) rows[k] = row + (from + k) * stride_;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const Column& column = columns_[c];
            char* packed = const_cast<char*>(sources[c]) + (place + from) * column.bytes;
            fillers_[c](rows, packed, nullptr, count, column);
        }
    }
    // Where the next steps go, as many again, unless their values go past the caches.
    if (stride_ < static_cast<std::int64_t>(kStreamed)) prefetch(row + n * stride_, n * stride_);
}

// Block by block: while one block's columns are moved, the lines of the next are on their way.
template <typename Direction, bool Listed>
void RowStore::move(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                    std::int64_t first_place, std::int64_t n, char* const* packed) const {
    RowPart wanted;
    parts_.clear();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        const Column& column = columns_[c];
        if (packed[c] == nullptr) continue;
        wanted.cover(column);
        parts_.push_back({c, packed[c] + first_place * column.bytes, Move<Direction, Listed>::of(column)});
    }
    if (parts_.empty()) return;
    constexpr std::int64_t ring = kAhead * kBlock;
    char* const base = base_ + replica * replica_bytes_;
    char* rows[ring];
    const auto ask = [&](std::int64_t from) {
        const std::int64_t end = std::min(n, from + kBlock);
        for (std::int64_t k = from; k < end; ++k) {
            char* row = base + place(replica, slots[k]) * stride_;
            rows[k & (ring - 1)] = row;
            wanted.expect(row);
        }
    };
    for (std::int64_t k = 0; ask_first_ && k < n; ++k) MappedRows::ask_for(row(replica, slots[k]), stride_);
    for (std::int64_t from = 0; from < ring; from += kBlock) ask(from);
    for (std::int64_t from = 0; from < n; from += kBlock) {
        char* const* in = rows + (from & (ring - 1));
        const std::int64_t count = std::min(kBlock, n - from);
        for (Part& part : parts_) {
            const Column& column = columns_[part.column];
            if (!column.compressed)
                part.move(in, part.packed, places, count, column);
            else if constexpr (std::is_same_v<Direction, Gather>)
                unpack_column(replica, part.column, in, part.packed, places, count);
            else
                pack_column(log(replica, part.column), in, part.packed, places, count, column);
            if (!Listed) part.packed += count * column.bytes;
        }
        if (Listed) places += count;
        ask(from + ring);
    }
}

void RowStore::scatter(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                       std::int64_t n, const char* const* sources) {
    // One function moves both ways, so it takes pointers it may write to; Scatter only reads through them.
    move<Scatter, true>(replica, slots, places, 0, n, const_cast<char* const*>(sources));
}

void RowStore::gather(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
                      std::int64_t n, char* const* targets) const {
    move<Gather, true>(replica, slots, places, 0, n, targets);
}

void RowStore::gather(std::int64_t replica, const std::int64_t* slots, std::int64_t first, std::int64_t n,
                      char* const* targets) const {
    move<Gather, false>(replica, slots, nullptr, first, n, targets);
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
        char* const out = packed + (places != nullptr ? places[k] : k) * columns_[c].bytes;
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
