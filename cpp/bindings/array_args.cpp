#include "bindings/array_args.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "support/error.hpp"

#define PY_ARRAY_UNIQUE_SYMBOL replaylab_numpy
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

namespace replaylab {

namespace {

PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

PyArray_Descr* as_descr(const nb::object& dtype) { return reinterpret_cast<PyArray_Descr*>(dtype.ptr()); }

// PyArray_* calls steal a reference to the descriptor they are given.
PyArray_Descr* give_descr(const nb::object& dtype) {
    Py_INCREF(dtype.ptr());
    return as_descr(dtype);
}

nb::object checked(PyObject* made) {
    if (made == nullptr) nb::raise_python_error();
    return nb::steal<nb::object>(made);
}

std::string shape_text(const std::vector<std::int64_t>& dims) {
    std::string text = "(";
    for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
    return text + (dims.size() == 1 ? ",)" : ")");
}

// Lets an array keep the owner of its memory alive.
nb::object owned(nb::object array, nb::object owner) {
    if (PyArray_SetBaseObject(as_array(array), owner.release().ptr()) < 0) nb::raise_python_error();
    return array;
}

// Whether an array has the leading axes that are present, then the field's own.
bool has_shape(PyArrayObject* array, const Leading& leading, const std::vector<std::int64_t>& shape) {
    const npy_intp* dim = PyArray_DIMS(array);
    const npy_intp* end = dim + PyArray_NDIM(array);
    for (const std::int64_t axis : {leading.replicas, leading.steps, leading.num_envs})
        if (axis >= 0 && (dim == end || *dim++ != axis)) return false;
    for (const std::int64_t axis : shape)
        if (dim == end || *dim++ != axis) return false;
    return dim == end;
}

// Whether the core can read an array's memory as it is.
bool is_plain(PyArrayObject* array, const nb::object& dtype) {
    return (PyArray_DESCR(array) == as_descr(dtype) ||
            PyArray_EquivTypes(PyArray_DESCR(array), as_descr(dtype))) &&
           PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISBEHAVED_RO(array);
}

template <typename Integer>
bool store_integer(PyObject* value, char* to) {
    int overflow = 0;
    const long long wide = PyLong_AsLongLongAndOverflow(value, &overflow);
    const auto narrow = static_cast<Integer>(wide);
    if (overflow != 0 || static_cast<long long>(narrow) != wide || (wide < 0) != (narrow < Integer{0}))
        return false;
    std::memcpy(to, &narrow, sizeof narrow);
    return true;
}

nb::object new_array(const std::vector<std::int64_t>& leading, const std::vector<std::int64_t>& shape,
                     const nb::object& dtype) {
    npy_intp dims[NPY_MAXDIMS];
    const std::size_t axes = leading.size() + shape.size();
    if (axes > NPY_MAXDIMS) fail("ShapeError", "an array has at most ", NPY_MAXDIMS, " axes");
    std::copy(shape.begin(), shape.end(), std::copy(leading.begin(), leading.end(), dims));
    return checked(PyArray_Empty(static_cast<int>(axes), dims, give_descr(dtype), 0));
}

nb::object dtype_of(int kind) { return checked(reinterpret_cast<PyObject*>(PyArray_DescrFromType(kind))); }

FieldBorder scalar_field(const char* name, int kind) { return FieldBorder(name, {}, dtype_of(kind)); }

nb::object optional(std::int64_t axis) {
    if (axis < 0) return nb::none();
    return nb::int_(axis);
}

// NumPy's number of a type that vectors hold.
template <typename Value>
constexpr int kKind = std::is_same_v<Value, float>           ? NPY_FLOAT32
                      : std::is_same_v<Value, std::uint32_t> ? NPY_UINT32
                                                             : NPY_INT64;

template <typename Value>
Flat<Value> flat_of(nb::object array) {
    PyArrayObject* own = as_array(array);
    Flat<Value> flat;
    flat.dims.assign(PyArray_DIMS(own), PyArray_DIMS(own) + PyArray_NDIM(own));
    flat.size = PyArray_SIZE(own);
    flat.data = static_cast<const Value*>(PyArray_DATA(own));
    flat.array = std::move(array);
    return flat;
}

}  // namespace

void import_numpy() {
    if (PyArray_ImportNumPyAPI() < 0) nb::raise_python_error();
}

nb::object imported(const char* module, const char* name) {
    const nb::object found = checked(with_gil([&] { return PyImport_ImportModule(module); }));
    return checked(with_gil([&] { return PyObject_GetAttrString(found.ptr(), name); }));
}

void set_python_error(const Error& error) noexcept {
    try {
        const nb::object kind = imported("replaylab.errors", error.kind());
        // It may quote what a damaged file says, which need be no text.
        const std::string said = error.what();
        const nb::object text = checked(
            PyUnicode_DecodeUTF8(said.data(), static_cast<Py_ssize_t>(said.size()), "backslashreplace"));
        PyErr_SetObject(kind.ptr(), text.ptr());
    } catch (nb::python_error& other) {  // as when the interpreter ends
        other.restore();
    }
}

void set_python_error_of_any() noexcept {
    try {
        throw;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const Error& error) {
        set_python_error(error);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::length_error&) {  // more than any memory holds
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_Format(PyExc_RuntimeError, "the compiled core failed: %s", error.what());
    }
}

std::vector<std::int64_t> Leading::dims() const {
    std::vector<std::int64_t> dims;
    for (const std::int64_t axis : {replicas, steps, num_envs})
        if (axis >= 0) dims.push_back(axis);
    return dims;
}

void Input::copy() {
    keep = checked(PyArray_NewCopy(as_array(keep), NPY_CORDER));
    data = PyArray_BYTES(as_array(keep));
}

FieldBorder::FieldBorder(const std::string& name, const std::vector<std::int64_t>& shape, nb::object dtype,
                         bool compressed)
    : dtype_(std::move(dtype)) {
    PyObject* key = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
    if (key != nullptr) PyUnicode_InternInPlace(&key);
    key_ = checked(key);
    scalar_type_ = nb::borrow<nb::object>(reinterpret_cast<PyObject*>(as_descr(dtype_)->typeobj));
    kind_ = as_descr(dtype_)->type_num;
    column_.name = name;
    column_.shape = shape;
    column_.compressed = compressed;
    column_.floating = PyTypeNum_ISFLOAT(kind_);
    column_.itemsize = PyDataType_ELSIZE(as_descr(dtype_));
    column_.bytes = column_.itemsize;
    for (const std::int64_t dim : shape) column_.bytes *= dim;
}

// Python's and NumPy's own scalars, without making an array of them; false for what does not fit at once.
bool FieldBorder::read_scalar(nb::handle value, Input& input) const {
    PyObject* object = value.ptr();
    if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == scalar_type_.ptr()) {
        PyArray_ScalarAsCtype(object, input.scalar);
        return true;
    }
    if (PyFloat_Check(object) && kind_ == NPY_FLOAT64) {
        const double wide = PyFloat_AsDouble(object);
        return std::memcpy(input.scalar, &wide, sizeof wide), true;
    }
    if (PyFloat_Check(object) && kind_ == NPY_FLOAT32) {
        const double wide = PyFloat_AsDouble(object);
        const auto narrow = static_cast<float>(wide);
        if (std::isinf(narrow) && !std::isinf(wide)) return false;
        return std::memcpy(input.scalar, &narrow, sizeof narrow), true;
    }
    if (PyBool_Check(object)) {
        if (kind_ == NPY_BOOL) input.scalar[0] = object == Py_True;
        return kind_ == NPY_BOOL;
    }
    if (PyLong_Check(object) && PyTypeNum_ISINTEGER(kind_)) {
        const bool is_signed = PyTypeNum_ISSIGNED(kind_);
        switch (column_.itemsize) {
            case 1:
                return is_signed ? store_integer<std::int8_t>(object, input.scalar)
                                 : store_integer<std::uint8_t>(object, input.scalar);
            case 2:
                return is_signed ? store_integer<std::int16_t>(object, input.scalar)
                                 : store_integer<std::uint16_t>(object, input.scalar);
            case 4:
                return is_signed ? store_integer<std::int32_t>(object, input.scalar)
                                 : store_integer<std::uint32_t>(object, input.scalar);
            default:
                return is_signed ? store_integer<std::int64_t>(object, input.scalar)
                                 : store_integer<std::uint64_t>(object, input.scalar);
        }
    }
    return false;
}

NB_NOINLINE nb::object FieldBorder::fitted(nb::handle value, const Leading& leading) const {
    return call_arrays("fitted", key_, value, dtype_, nb::tuple(nb::cast(column_.shape)),
                       optional(leading.replicas), optional(leading.steps), optional(leading.num_envs));
}

void FieldBorder::read(nb::handle value, const Leading& leading, Input& input) const {
    const bool is_array = PyArray_Check(value.ptr());
    if (!is_array && column_.shape.empty() && leading.none() && read_scalar(value, input)) {
        input.data = input.scalar;
        return;
    }
    if (is_array && has_shape(as_array(value), leading, column_.shape) && is_plain(as_array(value), dtype_))
        input.keep = nb::borrow<nb::object>(value);
    else
        input.keep = fitted(value, leading);
    input.data = PyArray_BYTES(as_array(input.keep));
}

void FieldBorder::read_each(nb::handle value, const std::vector<std::int64_t>& ids, Input& input) const {
    const bool plain = PyArray_Check(value.ptr()) &&
                       has_shape(as_array(value), Leading{}, joined(ids, column_.shape)) &&
                       is_plain(as_array(value), dtype_);
    input.keep = plain ? nb::borrow<nb::object>(value)
                       : call_arrays("fitted_to_ids", key_, value, dtype_, nb::tuple(nb::cast(column_.shape)),
                                     nb::tuple(nb::cast(ids)));
    input.data = PyArray_BYTES(as_array(input.keep));
}

std::int64_t FieldBorder::steps_of(nb::handle value, const Leading& leading) const {
    const int axis = leading.replicas >= 0 ? 1 : 0;
    if (PyArray_Check(value.ptr()) && PyArray_NDIM(as_array(value)) > axis)
        return PyArray_DIM(as_array(value), axis);
    return nb::cast<std::int64_t>(call_arrays("steps_of", key_, value, axis));
}

nb::object FieldBorder::target(const std::vector<std::int64_t>& leading, nb::handle out, char*& data) const {
    nb::object array;
    if (out.is_none()) {
        array = new_array(leading, column_.shape, dtype_);
    } else {
        const std::vector<std::int64_t> dims = joined(leading, column_.shape);
        if (!PyArray_Check(out.ptr()) || !has_shape(as_array(out), Leading{}, dims) ||
            !is_plain(as_array(out), dtype_) || !PyArray_ISWRITEABLE(as_array(out)))
            fail("ShapeError", "`out` must hold, for field `", column_.name, "`, a writable C-contiguous ",
                 nb::str(dtype_).c_str(), " array of shape ", shape_text(dims),
                 "; pass a batch that an equal call to sample returned");
        array = nb::borrow<nb::object>(out);
    }
    data = PyArray_BYTES(as_array(array));
    return array;
}

nb::object FieldBorder::view(char* data, const std::vector<std::int64_t>& dims,
                             const std::vector<std::int64_t>& strides, nb::handle owner) const {
    const std::vector<std::int64_t> all = joined(dims, column_.shape);
    std::vector<npy_intp> sizes(all.begin(), all.end());
    std::vector<npy_intp> steps(strides.begin(), strides.end());
    steps.resize(all.size());
    std::int64_t step = column_.itemsize;
    for (std::size_t i = all.size(); i-- > dims.size(); step *= all[i]) steps[i] = step;
    return owned(checked(PyArray_NewFromDescr(&PyArray_Type, give_descr(dtype_), static_cast<int>(all.size()),
                                              sizes.data(), steps.data(), data, 0, nullptr)),
                 nb::borrow(owner));
}

FieldBorder float64_field(const char* name) { return scalar_field(name, NPY_FLOAT64); }
FieldBorder float32_field(const char* name) { return scalar_field(name, NPY_FLOAT32); }
FieldBorder int64_field(const char* name) { return scalar_field(name, NPY_INT64); }
FieldBorder bool_field(const char* name) { return scalar_field(name, NPY_BOOL); }

Flat<std::int64_t> read_ids(nb::handle ids, std::int64_t replicas) {
    const bool plain = PyArray_Check(ids.ptr()) && PyArray_TYPE(as_array(ids)) == NPY_INT64 &&
                       PyArray_IS_C_CONTIGUOUS(as_array(ids)) && PyArray_ISBEHAVED_RO(as_array(ids));
    auto flat = flat_of<std::int64_t>(plain ? nb::borrow<nb::object>(ids) : call_arrays("ids_array", ids));
    if (replicas >= 0 && (flat.dims.empty() || flat.dims[0] != replicas))
        fail("ShapeError", "`ids` must have replicas=", replicas, " as its first axis, but got shape ",
             shape_text(flat.dims), "; pass the ids that add or sample returned");
    return flat;
}

Flat<double> read_values(nb::handle values, const Flat<std::int64_t>& ids, const char* name) {
    const int kind = PyArray_Check(values.ptr()) ? PyArray_TYPE(as_array(values)) : NPY_VOID;
    const bool plain = kind == NPY_FLOAT32 || kind == NPY_FLOAT64;
    const auto as_float64 = [&] {  // NumPy lets go of the GIL meanwhile
        return checked(
            PyArray_FROMANY(values.ptr(), NPY_FLOAT64, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED));
    };
    const nb::object array = plain ? with_gil(as_float64) : call_arrays("values_array", name, values);
    auto flat = flat_of<double>(array);
    if (flat.dims != ids.dims)
        fail("ShapeError", "`", name, "` must have the shape of ids, ", shape_text(ids.dims), ", but got ",
             shape_text(flat.dims), "; pass one value per id");
    return flat;
}

template <typename Value>
nb::object array_of(std::vector<Value> values) {
    npy_intp size = static_cast<npy_intp>(values.size());
    if (size == 0) return new_array({0}, {}, dtype_of(kKind<Value>));
    auto own = std::make_unique<std::vector<Value>>(std::move(values));
    nb::object array = checked(PyArray_SimpleNewFromData(1, &size, kKind<Value>, own->data()));
    const auto forget = [](void* vector) noexcept { delete static_cast<std::vector<Value>*>(vector); };
    nb::capsule owner(own.get(), forget);
    own.release();
    return owned(std::move(array), std::move(owner));
}
template nb::object array_of(std::vector<std::int64_t>);
template nb::object array_of(std::vector<std::uint32_t>);
template nb::object array_of(std::vector<float>);

template <typename Value>
std::vector<Value> vector_of(nb::handle array) {
    if (!PyArray_Check(array.ptr()) || PyArray_TYPE(as_array(array)) != kKind<Value> ||
        PyArray_NDIM(as_array(array)) != 1 || !PyArray_IS_C_CONTIGUOUS(as_array(array)))
        fail("SnapshotError", "the snapshot holds an array of another dtype or shape than it should");
    const auto* data = static_cast<const Value*>(PyArray_DATA(as_array(array)));
    return std::vector<Value>(data, data + PyArray_SIZE(as_array(array)));
}
template std::vector<std::int64_t> vector_of(nb::handle);
template std::vector<std::uint32_t> vector_of(nb::handle);
template std::vector<float> vector_of(nb::handle);

nb::object bytes_view(char* data, std::int64_t rows, std::int64_t stride, nb::handle owner) {
    npy_intp dims[2] = {rows, stride};
    return owned(checked(PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(NPY_UINT8), 2, dims,
                                              nullptr, data, NPY_ARRAY_WRITEABLE, nullptr)),
                 nb::borrow(owner));
}

}  // namespace replaylab
