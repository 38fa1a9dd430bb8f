#include "border.hpp"

#include <cstring>

#include "error.hpp"

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

std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

template <typename Range>
std::string shape_text(const Range& dims, std::size_t n) {
    std::string text = "(";
    for (std::size_t i = 0; i < n; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
    return text + (n == 1 ? ",)" : ")");
}

std::string shape_text(const std::vector<std::int64_t>& dims) { return shape_text(dims, dims.size()); }

std::string shape_of(PyArrayObject* array) {
    return shape_text(PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array)));
}

bool has_shape(PyArrayObject* array, const std::vector<std::int64_t>& dims) {
    if (PyArray_NDIM(array) != static_cast<int>(dims.size())) return false;
    for (std::size_t i = 0; i < dims.size(); ++i)
        if (PyArray_DIM(array, static_cast<int>(i)) != dims[i]) return false;
    return true;
}

std::vector<std::int64_t> joined(std::vector<std::int64_t> dims, const std::vector<std::int64_t>& shape) {
    dims.insert(dims.end(), shape.begin(), shape.end());
    return dims;
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

nb::object new_array(const std::vector<std::int64_t>& dims, const nb::object& dtype) {
    std::vector<npy_intp> sizes(dims.begin(), dims.end());
    return checked(PyArray_Empty(static_cast<int>(sizes.size()), sizes.data(), give_descr(dtype), 0));
}

nb::object dtype_of(int kind) {
    return checked(reinterpret_cast<PyObject*>(PyArray_DescrFromType(kind)));
}

FieldBorder scalar_field(const char* name, int kind) { return FieldBorder(name, {}, dtype_of(kind)); }

// Any array-like as a contiguous array of one dtype, by the same-kind rule.
nb::object contiguous(nb::handle value, const nb::object& dtype, const char* what) {
    nb::object array = checked(PyArray_FROM_O(value.ptr()));
    if (!PyArray_CanCastArrayTo(as_array(array), as_descr(dtype), NPY_SAME_KIND_CASTING))
        fail("DtypeError", "`", what, "` must be ", text_of(dtype), " or safely castable to it, but got ",
             text_of(array.attr("dtype")), "; convert it first");
    return checked(PyArray_FromArray(as_array(array), give_descr(dtype),
                                     NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST));
}

}  // namespace

void import_numpy() {
    if (PyArray_ImportNumPyAPI() < 0) nb::raise_python_error();
}

std::vector<std::int64_t> Leading::dims() const {
    std::vector<std::int64_t> dims;
    for (const std::int64_t axis : {replicas, steps, num_envs})
        if (axis >= 0) dims.push_back(axis);
    return dims;
}

std::string Leading::describe() const {
    std::string text;
    const auto name = [&](const char* axis, std::int64_t n) {
        if (n >= 0) text += (text.empty() ? "" : ", ") + (axis + ("=" + std::to_string(n)));
    };
    name("replicas", replicas);
    name("steps", steps);
    name("num_envs", num_envs);
    return text;
}

FieldBorder::FieldBorder(const std::string& name, const std::vector<std::int64_t>& shape, nb::object dtype)
    : dtype_(std::move(dtype)) {
    PyObject* key = PyUnicode_InternFromString(name.c_str());
    key_ = checked(key);
    kind_ = as_descr(dtype_)->type_num;
    column_.name = name;
    column_.shape = shape;
    column_.itemsize = PyDataType_ELSIZE(as_descr(dtype_));
    column_.bytes = column_.itemsize;
    for (const std::int64_t dim : shape) column_.bytes *= dim;
}

void FieldBorder::fail_shape(const Leading& leading, const std::string& got) const {
    const std::string axes = leading.describe();
    fail("ShapeError", "field `", column_.name, "` must have shape ",
         shape_text(joined(leading.dims(), column_.shape)), ", that is ",
         axes.empty() ? "its own shape " : "the leading axes (" + axes + ") and its own shape ",
         shape_text(column_.shape), ", but got ", got,
         "; leading axes are replicas, steps, environments in this order, each only where declared or called for");
}

// Python's and NumPy's own scalars, without making an array of them.
bool FieldBorder::read_scalar(nb::handle value, Input& input) const {
    PyObject* object = value.ptr();
    if (PyArray_IsScalar(object, Generic)) {
        nb::object own = checked(reinterpret_cast<PyObject*>(PyArray_DescrFromScalar(object)));
        if (as_descr(own)->type_num == kind_) {
            PyArray_ScalarAsCtype(object, input.scalar);
            return true;
        }
    }
    if (PyFloat_Check(object)) {
        const double wide = PyFloat_AS_DOUBLE(object);
        const auto narrow = static_cast<float>(wide);
        if (kind_ == NPY_FLOAT32) return std::memcpy(input.scalar, &narrow, sizeof narrow), true;
        if (kind_ == NPY_FLOAT64) return std::memcpy(input.scalar, &wide, sizeof wide), true;
    } else if (PyBool_Check(object)) {
        if (kind_ == NPY_BOOL) return input.scalar[0] = object == Py_True, true;
    } else if (PyLong_Check(object) && PyTypeNum_ISINTEGER(kind_)) {
        bool fits = false;
        const bool is_signed = PyTypeNum_ISSIGNED(kind_);
        switch (column_.itemsize) {
            case 1: fits = is_signed ? store_integer<std::int8_t>(object, input.scalar)
                                     : store_integer<std::uint8_t>(object, input.scalar); break;
            case 2: fits = is_signed ? store_integer<std::int16_t>(object, input.scalar)
                                     : store_integer<std::uint16_t>(object, input.scalar); break;
            case 4: fits = is_signed ? store_integer<std::int32_t>(object, input.scalar)
                                     : store_integer<std::uint32_t>(object, input.scalar); break;
            default: fits = is_signed ? store_integer<std::int64_t>(object, input.scalar)
                                      : store_integer<std::uint64_t>(object, input.scalar);
        }
        if (!fits)
            fail("DtypeError", "field `", column_.name, "` stores ", text_of(dtype_), ", which cannot hold ",
                 text_of(value), "; declare it with a wider dtype");
        return true;
    }
    return false;
}

void FieldBorder::read(nb::handle value, const Leading& leading, Input& input) const {
    const std::vector<std::int64_t> dims = joined(leading.dims(), column_.shape);
    const bool is_array = PyArray_Check(value.ptr());
    if (!is_array && dims.empty() && read_scalar(value, input)) {
        input.data = input.scalar;
        return;
    }
    input.keep = is_array ? nb::borrow<nb::object>(value) : checked(PyArray_FROM_O(value.ptr()));
    PyArrayObject* array = as_array(input.keep);
    if (!has_shape(array, dims)) fail_shape(leading, shape_of(array));
    const bool same_dtype = PyArray_DESCR(array) == as_descr(dtype_) ||
                            PyArray_EquivTypes(PyArray_DESCR(array), as_descr(dtype_));
    if (!same_dtype && !PyArray_CanCastArrayTo(array, as_descr(dtype_), NPY_SAME_KIND_CASTING))
        fail("DtypeError", "field `", column_.name, "` stores ", text_of(dtype_), ", but got ",
             text_of(input.keep.attr("dtype")), ", which is not castable to it within the same kind; convert it (`.astype(\"",
             text_of(dtype_), "\")`) or declare the field with another dtype");
    if (!same_dtype || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISBEHAVED_RO(array)) {
        input.keep = checked(PyArray_FromArray(array, give_descr(dtype_),
                                               NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST));
        array = as_array(input.keep);
    }
    input.data = PyArray_BYTES(array);
}

std::int64_t FieldBorder::steps_of(nb::handle value, const Leading& leading) const {
    nb::object array = checked(PyArray_FROM_O(value.ptr()));
    const int axis = leading.replicas >= 0 ? 1 : 0;
    if (PyArray_NDIM(as_array(array)) <= axis) {
        Leading wanted = leading;
        wanted.steps = 1;
        fail_shape(wanted, shape_of(as_array(array)));
    }
    return PyArray_DIM(as_array(array), axis);
}

nb::object FieldBorder::target(const std::vector<std::int64_t>& leading, nb::handle out, char*& data) const {
    const std::vector<std::int64_t> dims = joined(leading, column_.shape);
    nb::object array;
    if (out.is_none()) {
        array = new_array(dims, dtype_);
    } else {
        if (!PyArray_Check(out.ptr()) || !has_shape(as_array(out), dims) ||
            !PyArray_EquivTypes(PyArray_DESCR(as_array(out)), as_descr(dtype_)) ||
            !PyArray_IS_C_CONTIGUOUS(as_array(out)) || !PyArray_ISBEHAVED(as_array(out)))
            fail("ShapeError", "`out` must hold, for field `", column_.name, "`, a writable C-contiguous ",
                 text_of(dtype_), " array of shape ", shape_text(dims),
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
    nb::object array = checked(PyArray_NewFromDescr(&PyArray_Type, give_descr(dtype_), static_cast<int>(all.size()),
                                                    sizes.data(), steps.data(), data, 0, nullptr));
    Py_INCREF(owner.ptr());
    if (PyArray_SetBaseObject(as_array(array), owner.ptr()) < 0) nb::raise_python_error();
    return array;
}

FieldBorder float64_field(const char* name) { return scalar_field(name, NPY_FLOAT64); }
FieldBorder float32_field(const char* name) { return scalar_field(name, NPY_FLOAT32); }
FieldBorder int64_field(const char* name) { return scalar_field(name, NPY_INT64); }
FieldBorder bool_field(const char* name) { return scalar_field(name, NPY_BOOL); }

Flat read_ids(nb::handle ids, std::int64_t replicas) {
    Flat flat;
    flat.array = contiguous(ids, dtype_of(NPY_INT64), "ids");
    PyArrayObject* array = as_array(flat.array);
    flat.dims.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
    if (replicas >= 0 && (flat.dims.empty() || flat.dims[0] != replicas))
        fail("ShapeError", "`ids` must have replicas=", replicas, " as its first axis, but got shape ",
             shape_text(flat.dims), "; pass the ids that add or sample returned");
    flat.size = PyArray_SIZE(array);
    flat.data = PyArray_DATA(array);
    return flat;
}

Flat read_values(nb::handle values, const Flat& ids, const char* name) {
    Flat flat;
    flat.array = contiguous(values, dtype_of(NPY_FLOAT64), name);
    PyArrayObject* array = as_array(flat.array);
    flat.dims.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
    if (flat.dims != ids.dims)
        fail("ShapeError", "`", name, "` must have the shape of ids, ", shape_text(ids.dims), ", but got ",
             shape_text(flat.dims), "; pass one value an id");
    flat.size = PyArray_SIZE(array);
    flat.data = PyArray_DATA(array);
    return flat;
}

nb::object new_float64(const std::vector<std::int64_t>& dims, double*& data) {
    nb::object array = new_array(dims, dtype_of(NPY_FLOAT64));
    data = static_cast<double*>(PyArray_DATA(as_array(array)));
    return array;
}

}  // namespace replaylab
