// The row store: one environment step is one contiguous row holding all its fields, so that a draw
// touches one place in memory and not one per field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arena.hpp"

namespace replaylab {

// Where one field lies inside a row.
struct Column {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t itemsize = 0;
    std::int64_t bytes = 0;   // itemsize × product of shape
    std::int64_t offset = 0;  // from the start of the row
};

class RowStore {
  public:
    // Lays the columns out (widest items first, so that each is aligned without padding between them) and
    // takes the memory of every replica's rows: the ring's, a row of zeros, and as many closing rows, whose
    // pages the system gives only when they are written to.
    RowStore(std::vector<Column> columns, std::int64_t capacity, std::int64_t replicas,
             std::int64_t closing_rows = 0);

    const std::vector<Column>& columns() const { return columns_; }
    std::int64_t stride() const { return stride_; }
    std::int64_t capacity() const { return capacity_; }
    std::int64_t nbytes() const { return stride_ * (capacity_ + 1) * replicas_; }
    char* row(std::int64_t replica, std::int64_t index) const {
        return arena_.data() + (replica * rows_ + index) * stride_;
    }

    // Behind the ring's rows 0 .. capacity − 1: a row that is always zero, and the closing rows.
    std::int64_t zero_row() const { return capacity_; }
    std::int64_t closing_row() const { return capacity_ + 1; }
    std::int64_t rows() const { return rows_; }

    // Copies values into rows slots[0..n) of one replica: sources[c] holds packed values of column c, and row
    // k takes number places[k]. Of equal slots the last wins. Columns whose source is null are left out.
    void scatter(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places, std::int64_t n,
                 const char* const* sources);

    // Copies rows slots[0..n) of one replica out: row k becomes number places[k] of targets[c].
    // Columns whose target is null are left out.
    void gather(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places, std::int64_t n,
                char* const* targets) const;

    // Bytes of one row, before any memory is taken.
    static std::int64_t lay_out(std::vector<Column>& columns);

  private:
    template <typename Direction>
    void move(std::int64_t replica, const std::int64_t* slots, const std::int64_t* places, std::int64_t n,
              char* const* packed) const;

    std::vector<Column> columns_;
    std::int64_t stride_;
    std::int64_t capacity_;
    std::int64_t replicas_;
    std::int64_t rows_;  // of each replica
    Arena arena_;
};

}  // namespace replaylab
