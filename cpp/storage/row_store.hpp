// The row store: one environment step is one contiguous row holding all its fields, so that a draw
// touches one place in memory and not one per field.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "storage/mapped_rows.hpp"
#include "storage/packed_log.hpp"
#include "support/arena.hpp"
#include "support/prefetch.hpp"
#include "support/state.hpp"

namespace replaylab {

// Where one field lies inside a row.
struct Column {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t itemsize = 0;
    std::int64_t bytes = 0;   // itemsize × product of shape
    std::int64_t offset = 0;  // from the start of the row
    bool compressed = false;  // the row holds only where its log has the value
    bool floating = false;    // its numbers are floating-point ones
};

// Whether a value is anything but zero, as NumPy says it: −0.0 is zero, NaN is not.
bool is_set(const Column& column, const char* value);

// A value as a number: of 32 or 64 bits, signed.
double number_of(const Column& column, const char* value);

// The part of a row that holds some columns.
struct RowPart {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;

    void cover(const Column& column);

    // Asks for its lines in this row; past a few the hardware's own streams do better.
    void expect(const char* row) const {
        constexpr std::int64_t kLine = 64, kMost = 16 * kLine;
        if (end == 0) return;
        const char* const stop = row + std::min(end, begin + kMost);
        for (const char* at = row + begin; at < stop; at += kLine) prefetch(at);
        prefetch(stop - 1);
    }
};

// Moves one column of n rows between them and packed values.
using MoveColumn = void(char* const* rows, char* packed, const std::int64_t* places, std::int64_t n,
                        const Column& column);

class RowStore {
  public:
    // Lays the columns out (widest items first, so that each is aligned without padding between them) and
    // takes the memory of every replica's rows: the ring's, a row of zeros, and as many closing rows, whose
    // pages the system gives only when they are written to.
    // With `outside` the rows are there instead: slot i of the ring is whichever row point() said last.
    RowStore(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas,
             std::int64_t closing_rows = 0, const MappedRows* outside = nullptr);

    const std::vector<Column>& columns() const { return columns_; }
    std::int64_t stride() const { return stride_; }
    std::int64_t capacity() const { return capacity_; }
    std::int64_t packed_nbytes() const;  // of compressed columns, in addition to the rows
    char* row(std::int64_t replica, std::int64_t index) const {
        return base_ + replica * replica_bytes_ + place(replica, index) * stride_;
    }

    // Whether any of these bytes are rows of this store.
    bool holds(const char* begin, std::int64_t bytes) const {
        return begin < base_ + replica_bytes_ * replicas_ && begin + bytes > base_;
    }

    // From now on the slot is this row outside.
    void point(std::int64_t replica, std::int64_t slot, std::int64_t row) {
        outside_[static_cast<std::size_t>(replica * rows_ + slot)] = static_cast<std::uint32_t>(row);
    }

    // Fills n rows, side by side, with values number `place` and following of all columns, none of which is
    // compressed.
    void fill(char* row, std::int64_t n, std::int64_t place, const char* const* sources) const;

    // Behind the ring's rows 0 .. capacity − 1: a row that is always zero, and the closing rows.
    std::int64_t zero_row() const { return capacity_; }
    std::int64_t closing_row() const { return capacity_ + 1; }
    std::int64_t rows() const { return rows_; }

    // Copies values into rows slots[0..n) of one replica: sources[c] holds packed values of column c, and row
    // k takes number places[k]. Of equal slots the last wins. Columns whose source is null are left out.
    void scatter(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places, std::int64_t n,
                 const char* const* sources);

    // Copies rows slots[0..n) of one replica out: row k becomes number places[k], or first + k, of
    // targets[c]. Columns whose target is null are left out.
    void gather(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places, std::int64_t n,
                char* const* targets) const;
    void gather(std::int64_t replica, const std::int64_t* slots, std::int64_t first, std::int64_t n,
                char* const* targets) const;

    // What follows is one turn, until the next begins: values it has unpacked stay where they were put.
    void begin_turn() const { ++turn_; }

    // One value, wherever it is: in the row, or unpacked into `scratch` first.
    const char* value(std::int64_t replica, std::int64_t index, std::size_t column,
                      std::vector<char>& scratch) const;

    // Compressed columns, each with a log in every replica.
    bool compressed() const { return compressed_; }
    PackedLog& log(std::int64_t replica, std::size_t column) const {
        return *logs_[static_cast<std::size_t>(replica) * columns_.size() + column];
    }
    PackedLog::Ref ref(std::int64_t replica, std::int64_t index, std::size_t column) const;
    void set_ref(std::int64_t replica, std::int64_t index, std::size_t column, PackedLog::Ref ref) const;

    // Lets go of the values of a row's compressed columns.
    void release(std::int64_t replica, std::int64_t index);

    // Takes what the next n values of each compressed column may need, so that nothing fails half-way.
    void reserve(std::int64_t replica, std::int64_t n);
    // Gives back what of that was not needed, and what is held for values long dropped.
    void tidy(std::int64_t replica);
    void visit(std::int64_t replica, StateVisitor& state);
    // After restoring: finds out what every segment still holds.
    void settle();

    // Bytes of one row, before any memory is taken.
    static std::int64_t lay_out(std::vector<Column>& columns);

  private:
    std::int64_t place(std::int64_t replica, std::int64_t index) const {
        if (outside_.empty()) return index;
        return outside_[static_cast<std::size_t>(replica * rows_ + index)];
    }

    template <typename Direction, bool Listed>
    void move(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places,
              std::int64_t first_place, std::int64_t n, char* const* packed) const;

    // A column that is moved, and how.
    struct Part {
        std::size_t column;
        char* packed;
        MoveColumn* move;
    };
    struct Unpacked {
        std::uint64_t turn = 0;
        const PackedLog* log = nullptr;
        PackedLog::Ref ref = 0;
        const char* value = nullptr;
    };

    void unpack_column(std::int64_t replica, std::size_t column, char* const* rows, char* packed,
                       const std::int64_t* places, std::int64_t n) const;

    std::vector<Column> columns_;
    std::int64_t stride_;
    std::int64_t capacity_;
    std::int64_t replicas_;
    std::int64_t rows_;  // of each replica
    Arena arena_;
    char* base_;  // of the first replica's rows, and from there to the next replica's
    std::int64_t replica_bytes_;
    bool ask_first_ = false;  // rows may be on disk still: ask for all of them before the first is waited for
    std::vector<std::uint32_t>
        outside_;  // by replica and row: where it lies; empty where the rows are in here
    bool compressed_ = false;
    mutable std::vector<Part> parts_;   // scratch
    std::vector<MoveColumn*> fillers_;  // by column: what fill() calls
    mutable std::uint64_t turn_ = 0;
    mutable std::vector<Unpacked> unpacked_;        // by a hash of the reference
    std::vector<std::unique_ptr<PackedLog>> logs_;  // by replica and column; null where it is as it is
};

}  // namespace replaylab
