// The border between Python and the core: arrays are checked and borrowed here, and nowhere else.
// NumPy's C interface is used (not the buffer protocol or DLPack) because making and checking a dozen
// small arrays is most of what a short call costs.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/gil.hpp"
#include "storage/row_store.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace nb = nanobind;

void import_numpy();

// Raises a core error as the Python class of its kind.
void set_python_error(const Error& error) noexcept;

// Raises what is being handled, whatever it is; for functions that Python calls as C, which nothing may
// leave.
void set_python_error_of_any() noexcept;

// Leading axes of an argument, always in this order, each present only where declared or called for.
struct Leading {
    std::int64_t replicas = -1;  // −1: this axis is absent
    std::int64_t steps = -1;
    std::int64_t num_envs = -1;

    bool none() const { return replicas < 0 && steps < 0 && num_envs < 0; }
    std::vector<std::int64_t> dims() const;

    // Product of the axes that are present.
    std::int64_t values() const {
        std::int64_t values = 1;
        for (const std::int64_t axis : {replicas, steps, num_envs}) values *= axis >= 0 ? axis : 1;
        return values;
    }
};

inline std::vector<std::int64_t> joined(std::vector<std::int64_t> dims,
                                        const std::vector<std::int64_t>& axes) {
    dims.insert(dims.end(), axes.begin(), axes.end());
    return dims;
}

// A checked argument: `data` points at contiguous values of the wanted dtype, kept alive by this object.
struct Input {
    nb::object keep;
    const char* data = nullptr;
    alignas(16) char scalar[32];

    // From now on points at a copy of the array it keeps.
    void copy();
};

// One declared field, as Python sees it.
class FieldBorder {
  public:
    FieldBorder(const std::string& name, const std::vector<std::int64_t>& shape, nb::object dtype,
                bool compressed = false);

    const Column& column() const { return column_; }
    nb::handle key() const { return key_; }

    // Borrows `value` if it fits as it is; otherwise replaylab.replay.data.arrays makes it fit or refuses it.
    void read(nb::handle value, const Leading& leading, Input& input) const;

    // The same for values of ids of this shape, one each.
    void read_each(nb::handle value, const std::vector<std::int64_t>& ids, Input& input) const;

    // The length of a value's steps axis.
    std::int64_t steps_of(nb::handle value, const Leading& leading) const;

    // A new array of leading dims + shape, or the caller's own array after checking that it fits.
    nb::object target(const std::vector<std::int64_t>& leading, nb::handle out, char*& data) const;

    // A read-only view of this field in every row: leading dims with these strides, then the shape.
    nb::object view(char* data, const std::vector<std::int64_t>& dims,
                    const std::vector<std::int64_t>& strides, nb::handle owner) const;

  private:
    bool read_scalar(nb::handle value, Input& input) const;
    nb::object fitted(nb::handle value, const Leading& leading) const;

    Column column_;
    nb::object key_;          // the name, interned
    nb::object dtype_;        // a numpy.dtype
    nb::object scalar_type_;  // the type of one NumPy scalar of it
    int kind_ = 0;            // NumPy's type number
};

// Fields every batch has besides the declared ones.
FieldBorder float64_field(const char* name);
FieldBorder float32_field(const char* name);
FieldBorder int64_field(const char* name);
FieldBorder bool_field(const char* name);

// ids, or values beside them, of any shape, whose first axis is replicas where there is one.
template <typename Value>
struct Flat {
    nb::object array;
    std::vector<std::int64_t> dims;
    std::int64_t size = 0;
    const Value* data = nullptr;
};
Flat<std::int64_t> read_ids(nb::handle ids, std::int64_t replicas);
Flat<double> read_values(nb::handle values, const Flat<std::int64_t>& ids, const char* name);

// Between vectors and one-dimensional arrays: array_of makes an array of a vector's memory, vector_of copies,
// and throws SnapshotError for another dtype.
template <typename Value>
nb::object array_of(std::vector<Value> values);
template <typename Value>
std::vector<Value> vector_of(nb::handle array);

// A writable view of memory as uint8 (rows, stride).
nb::object bytes_view(char* data, std::int64_t rows, std::int64_t stride, nb::handle owner);

// A module's attribute. Nothing here, nor below, has anything to clean up inside of with_gil().
nb::object imported(const char* module, const char* name);

// Calls the Python side of the border: the rules and messages for arguments that do not fit as they are.
template <typename... Arguments>
nb::object call_arrays(const char* name, Arguments&&... arguments) {
    const nb::object function = imported("replaylab.replay.data.arrays", name);
    return with_gil([&]() -> nb::object { return function(std::forward<Arguments>(arguments)...); });
}

}  // namespace replaylab
