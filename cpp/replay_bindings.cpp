// The one compiled class Python sees: a Replay behind the border.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <tuple>

#include "border.hpp"
#include "error.hpp"
#include "replay.hpp"

namespace replaylab {

namespace {

using FieldTuple = std::tuple<std::string, std::vector<std::int64_t>, nb::object>;

std::vector<Column> columns_of(const std::vector<FieldBorder>& fields) {
    std::vector<Column> columns;
    for (const FieldBorder& field : fields) columns.push_back(field.column());
    return columns;
}

std::vector<FieldBorder> borders_of(const std::vector<FieldTuple>& fields) {
    std::vector<FieldBorder> borders;
    for (const auto& [name, shape, dtype] : fields) borders.emplace_back(name, shape, dtype);
    return borders;
}

// Copies arrays out into a dict.
class Saver : public StateVisitor {
  public:
    nb::dict arrays;
    bool restoring() const override { return false; }

  protected:
    void integers(const std::string& name, std::vector<std::int64_t>& values) override {
        arrays[name.c_str()] = array_of(values);
    }
    void floats(const std::string& name, std::vector<float>& values) override {
        arrays[name.c_str()] = array_of(values);
    }
};

// Takes arrays from a dict; each must be as long as the one it replaces, unless that one is of any length.
class Restorer : public StateVisitor {
  public:
    explicit Restorer(nb::dict arrays) : arrays_(std::move(arrays)) {}
    bool restoring() const override { return true; }

  protected:
    void integers(const std::string& name, std::vector<std::int64_t>& values) override { take(name, values); }
    void floats(const std::string& name, std::vector<float>& values) override { take(name, values); }

  private:
    template <typename Value>
    void take(const std::string& name, std::vector<Value>& values) {
        if (!arrays_.contains(name.c_str()))
            fail("SnapshotError", "the snapshot lacks the array `", name, "`");
        std::vector<Value> given = vector_of<Value>(arrays_[name.c_str()]);
        if (!values.empty() && given.size() != values.size())
            fail("SnapshotError", "the snapshot's array `", name, "` must hold ", values.size(),
                 " values, but holds ", given.size());
        values = std::move(given);
    }

    nb::dict arrays_;
};

class BoundReplay {
  public:
    // replicas and num_envs are −1 where they were not declared: then their axis does not exist.
    BoundReplay(const std::vector<FieldTuple>& fields, std::int64_t capacity, std::int64_t replicas,
                std::int64_t num_envs, const SamplerConfig& sampler,
                const std::vector<std::vector<std::uint64_t>>& streams, bool skip_after_end,
                std::int64_t n_step, double gamma)
        : fields_(borders_of(fields)), replicas_(replicas), num_envs_(num_envs), n_step_(n_step) {
        std::vector<Random::State> states;
        for (const auto& words : streams)
            states.push_back({words.at(0), words.at(1), words.at(2), words.at(3)});
        replay_ = std::make_unique<Replay>(columns_of(fields_), capacity, replicas < 0 ? 1 : replicas,
                                           num_envs < 0 ? 1 : num_envs, sampler, states, skip_after_end,
                                           NStepConfig{n_step, gamma});
        // The row store decides the offsets.
        columns_ = replay_->rows().columns();
    }

    nb::object add(const nb::dict& values, nb::handle where) { return extend(values, where, -1); }

    nb::object extend(const nb::dict& values, nb::handle where, std::int64_t steps) {
        std::vector<Input> inputs(fields_.size());
        const Leading leading{replicas_, steps, num_envs_};
        for (std::size_t c = 0; c < fields_.size(); ++c)
            fields_[c].read(PyDict_GetItem(values.ptr(), fields_[c].key().ptr()), leading, inputs[c]);
        return store(inputs.data(), where, leading);
    }

    // add or extend (where=None, final_obs=None, **fields) as Python calls it: names in a tuple beside the
    // values, which mostly come in the declared order and, being interned, are the very same strings.
    nb::object add_by_name(const char* call, bool many_steps, PyObject* const* values, PyObject* names) {
        const std::size_t given = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
        std::array<Input, 12> few;
        std::vector<Input> many(fields_.size() > few.size() ? fields_.size() : 0);
        Input* inputs = many.empty() ? few.data() : many.data();
        Leading leading{replicas_, -1, num_envs_};
        nb::handle where = Py_None;
        std::size_t found = 0;
        for (std::size_t i = 0; i < given; ++i) {
            PyObject* name = PyTuple_GET_ITEM(names, i);
            const std::size_t c = column_named(name, i);
            if (c < fields_.size()) {
                if (many_steps && leading.steps < 0) leading.steps = fields_[c].steps_of(values[i], leading);
                fields_[c].read(values[i], leading, inputs[c]);
                ++found;
            } else if (PyUnicode_CompareWithASCIIString(name, "where") == 0) {
                where = values[i];
            } else if (PyUnicode_CompareWithASCIIString(name, "final_obs") != 0 || values[i] != Py_None) {
                found = fields_.size() + 1;
                break;
            }
        }
        if (found != fields_.size()) refuse(call, values, names, given);
        return store(inputs, where, leading);
    }

    nb::dict sample(std::int64_t batch, const std::vector<double>& scheduled, nb::handle out) {
        std::vector<std::int64_t> dims;
        if (replicas_ >= 0) dims.push_back(replicas_);
        dims.push_back(replay_->batch_rows(batch));
        std::vector<char*> targets(fields_.size());
        char *ids, *probabilities, *weights;
        nb::dict made;
        const auto put = [&](const FieldBorder& field, char*& data) {
            nb::object own = nb::none();
            if (!out.is_none()) {
                PyObject* given = PyDict_GetItemWithError(out.ptr(), field.key().ptr());
                if (given == nullptr)
                    fail("FieldError", "`out` has no field `", field.column().name,
                         "`; pass a batch that an equal call to sample returned");
                own = nb::borrow<nb::object>(given);
            }
            made[field.key()] = field.target(dims, own, data);
        };
        for (std::size_t c = 0; c < fields_.size(); ++c) put(fields_[c], targets[c]);
        NStepTargets extra{};
        put_extra(put, extra);
        put(weight_, weights);
        put(probability_, probabilities);
        put(id_, ids);
        {
            const nb::gil_scoped_release no_gil;
            replay_->sample(batch, scheduled.data(), targets.data(), reinterpret_cast<std::int64_t*>(ids),
                            reinterpret_cast<double*>(probabilities), reinterpret_cast<float*>(weights),
                            extra);
        }
        return made;
    }

    nb::dict gather(nb::handle ids, bool transformed) {
        const auto flat = read_ids(ids, replicas_);
        std::vector<char*> targets(fields_.size());
        nb::dict made;
        const auto put = [&](const FieldBorder& field, char*& data) {
            made[field.key()] = field.target(flat.dims, nb::none(), data);
        };
        for (std::size_t c = 0; c < fields_.size(); ++c) put(fields_[c], targets[c]);
        NStepTargets extra{};
        if (transformed) put_extra(put, extra);
        const nb::gil_scoped_release no_gil;
        replay_->gather(flat.data, flat.size / replay_->replicas(), targets.data(),
                        transformed ? &extra : nullptr);
        return made;
    }

    std::int64_t update(nb::handle ids, nb::handle values, bool td_errors) {
        const auto flat = read_ids(ids, replicas_);
        const auto fed = read_values(values, flat, td_errors ? "td_error" : "priority");
        const nb::gil_scoped_release no_gil;
        return replay_->update(flat.data, fed.data, flat.size / replay_->replicas(), td_errors);
    }

    nb::object probabilities(nb::handle ids, std::int64_t batch, const std::vector<double>& scheduled) {
        const auto flat = read_ids(ids, replicas_);
        double* data;
        nb::object made = new_float64(flat.dims, data);
        const nb::gil_scoped_release no_gil;
        replay_->probabilities(flat.data, flat.size / replay_->replicas(), batch, scheduled.data(), data);
        return made;
    }

    nb::tuple counts() const {
        const auto n = static_cast<std::size_t>(replay_->replicas());
        std::vector<std::int64_t> sizes(n), next_ids(n);
        {
            const nb::gil_scoped_release no_gil;
            replay_->counts(sizes.data(), next_ids.data());
        }
        return nb::make_tuple(sizes, next_ids);
    }

    nb::object column(std::size_t index, nb::handle owner) const {
        const RowStore& rows = replay_->rows();
        std::vector<std::int64_t> dims, strides;
        if (replicas_ >= 0) {
            dims.push_back(replicas_);
            strides.push_back(rows.capacity() * rows.stride());
        }
        dims.push_back(rows.capacity());
        strides.push_back(rows.stride());
        return fields_.at(index).view(rows.row(0, 0) + columns_[index].offset, dims, strides, owner);
    }

    std::int64_t nbytes() const { return replay_->nbytes(); }

    // Calls function(state) with every array but the rows, while nothing can change.
    void freeze(nb::handle function) {
        std::unique_ptr<nb::gil_scoped_release> no_gil = std::make_unique<nb::gil_scoped_release>();
        replay_->frozen([&] {
            no_gil.reset();
            Saver saver;
            replay_->visit(saver);
            function(saver.arrays);
        });
    }

    void restore(nb::dict state) {
        Restorer restorer(std::move(state));
        replay_->visit(restorer);
    }

    // All rows of one replica as bytes (C, stride), writable.
    nb::object bytes(std::int64_t replica, nb::handle owner) const {
        const RowStore& rows = replay_->rows();
        return bytes_view(rows.row(replica, 0), rows.capacity(), rows.stride(), owner);
    }

    // Where each field lies in a row.
    std::vector<std::int64_t> offsets() const {
        std::vector<std::int64_t> offsets;
        for (const Column& column : columns_) offsets.push_back(column.offset);
        return offsets;
    }

  private:
    // The columns a batch has besides the fields when steps are put together.
    template <typename Put>
    void put_extra(const Put& put, NStepTargets& extra) const {
        if (n_step_ == 0) return;
        char *discount, *steps;
        put(discount_, discount);
        put(steps_, steps);
        extra = {reinterpret_cast<float*>(discount), reinterpret_cast<std::int64_t*>(steps)};
    }

    // The column of this name, looked for first at the place it would have in the declared order.
    std::size_t column_named(PyObject* name, std::size_t guess) const {
        if (guess < fields_.size() && fields_[guess].key().ptr() == name) return guess;
        for (std::size_t c = 0; c < fields_.size(); ++c)
            if (PyUnicode_Compare(fields_[c].key().ptr(), name) == 0) return c;
        return fields_.size();
    }

    [[noreturn]] void refuse(const char* call, PyObject* const* values, PyObject* names,
                             std::size_t given) const {
        nb::dict by_name;
        for (std::size_t i = 0; i < given; ++i) by_name[PyTuple_GET_ITEM(names, i)] = nb::handle(values[i]);
        nb::list known;
        for (const FieldBorder& field : fields_) known.append(field.key());
        arrays_function("refuse")(call, by_name, nb::tuple(known));
        fail("FieldError", "`", call, "` takes every field exactly once");
    }

    nb::object store(const Input* inputs, nb::handle where, const Leading& leading) {
        std::array<const char*, 12> few;
        std::vector<const char*> many(fields_.size() > few.size() ? fields_.size() : 0);
        const char** sources = many.empty() ? few.data() : many.data();
        for (std::size_t c = 0; c < fields_.size(); ++c) sources[c] = inputs[c].data;
        Input mask;
        if (!where.is_none()) where_.read(where, leading, mask);
        const auto* kept = reinterpret_cast<const bool*>(mask.data);
        if (leading.none()) {
            std::int64_t id;
            replay_add(sources, 1, kept, &id);
            return nb::int_(id);
        }
        char* ids;
        nb::object made = id_.target(leading.dims(), nb::none(), ids);
        replay_add(sources, leading.steps < 0 ? 1 : leading.steps, kept,
                   reinterpret_cast<std::int64_t*>(ids));
        return made;
    }

    void replay_add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids) {
        const nb::gil_scoped_release no_gil;
        replay_->add(sources, steps, where, ids);
    }

    std::vector<FieldBorder> fields_;
    std::vector<Column> columns_;
    std::int64_t replicas_, num_envs_;
    std::int64_t n_step_;
    FieldBorder discount_ = float32_field("discount");
    FieldBorder steps_ = int64_field("n_steps");
    FieldBorder weight_ = float32_field("weight");
    FieldBorder probability_ = float64_field("probability");
    FieldBorder id_ = int64_field("id");
    FieldBorder where_ = bool_field("where");
    std::unique_ptr<Replay> replay_;
};

// Plain C methods, because nanobind has none that take keywords without making a dict of them.
PyObject* add_by_name(const char* call, bool many_steps, PyObject* self, PyObject* const* values,
                      Py_ssize_t positional, PyObject* names) {
    if (positional != 0)
        return PyErr_Format(PyExc_TypeError,
                            "`%s` takes every field by its name, as in %s(obs=..., action=...)", call, call);
    try {
        return nb::inst_ptr<BoundReplay>(self)->add_by_name(call, many_steps, values, names).release().ptr();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const Error& error) {
        set_python_error(error);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    return nullptr;
}

PyObject* add_step(PyObject* self, PyObject* const* values, Py_ssize_t positional, PyObject* names) {
    return add_by_name("add", false, self, values, positional, names);
}

PyObject* extend_steps(PyObject* self, PyObject* const* values, Py_ssize_t positional, PyObject* names) {
    return add_by_name("extend", true, self, values, positional, names);
}

template <typename Function>
PyCFunction as_method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef replay_methods[] = {
    {"add_step", as_method(add_step), METH_FASTCALL | METH_KEYWORDS,
     "Store one time step of every environment and return the ids; see ReplayBuffer.add."},
    {"extend_steps", as_method(extend_steps), METH_FASTCALL | METH_KEYWORDS,
     "Store many time steps and return the ids; see ReplayBuffer.extend."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot replay_slots[] = {{Py_tp_methods, replay_methods}, {0, nullptr}};

// Bytes of one row, and of one replica's sampler state, without taking them.
std::int64_t row_nbytes(const std::vector<FieldTuple>& fields) {
    std::vector<Column> columns = columns_of(borders_of(fields));
    return RowStore::lay_out(columns);
}

}  // namespace

void bind_replay(nb::module_& module) {
    nb::class_<SamplerConfig>(module, "SamplerConfig", "What the core needs to know of a sampler.")
        .def(
            "__init__",
            [](SamplerConfig* self, std::string kind, std::map<std::string, double> options,
               std::vector<SamplerConfig> parts) {
                new (self) SamplerConfig{std::move(kind), std::move(options), std::move(parts)};
            },
            nb::arg("kind"), nb::arg("options") = std::map<std::string, double>{},
            nb::arg("parts") = std::vector<SamplerConfig>{});

    nb::class_<BoundReplay>(module, "Replay", nb::type_slots(replay_slots),
                            "The compiled part of a ReplayBuffer.")
        .def(nb::init<const std::vector<FieldTuple>&, std::int64_t, std::int64_t, std::int64_t,
                      const SamplerConfig&, const std::vector<std::vector<std::uint64_t>>&, bool,
                      std::int64_t, double>(),
             nb::arg("fields"), nb::arg("capacity"), nb::arg("replicas"), nb::arg("num_envs"),
             nb::arg("sampler"), nb::arg("streams"), nb::arg("skip_after_end"), nb::arg("n_step"),
             nb::arg("gamma"))
        .def("add", &BoundReplay::add, nb::arg("values"), nb::arg("where").none(),
             nb::sig("def add(self, values: dict[str, typing.Any], where: typing.Any) -> typing.Any"))
        .def("extend", &BoundReplay::extend, nb::arg("values"), nb::arg("where").none(), nb::arg("steps"),
             nb::sig("def extend(self, values: dict[str, typing.Any], where: typing.Any, steps: int) -> "
                     "typing.Any"))
        .def("sample", &BoundReplay::sample, nb::arg("batch"), nb::arg("scheduled"), nb::arg("out").none(),
             nb::sig("def sample(self, batch: int, scheduled: collections.abc.Sequence[float], out: "
                     "dict[str, typing.Any] | None) -> "
                     "dict[str, typing.Any]"))
        .def("gather", &BoundReplay::gather, nb::arg("ids"), nb::arg("transformed"),
             nb::sig("def gather(self, ids: object, transformed: bool) -> dict[str, typing.Any]"))
        .def("update", &BoundReplay::update, nb::arg("ids"), nb::arg("values"), nb::arg("td_errors"))
        .def("probabilities", &BoundReplay::probabilities, nb::arg("ids"), nb::arg("batch"),
             nb::arg("scheduled"),
             nb::sig("def probabilities(self, ids: object, batch: int, scheduled: "
                     "collections.abc.Sequence[float]) -> numpy.typing.NDArray[numpy.float64]"))
        .def("counts", &BoundReplay::counts, nb::sig("def counts(self) -> tuple[list[int], list[int]]"))
        .def(
            "column",
            [](nb::handle_t<BoundReplay> self, std::size_t index) {
                return nb::cast<const BoundReplay&>(self).column(index, self);
            },
            nb::arg("index"))
        .def("freeze", &BoundReplay::freeze, nb::arg("function"),
             nb::sig("def freeze(self, function: collections.abc.Callable[[dict[str, typing.Any]], None]) -> "
                     "None"))
        .def("restore", &BoundReplay::restore, nb::arg("state"),
             nb::sig("def restore(self, state: dict[str, typing.Any]) -> None"))
        .def(
            "bytes",
            [](nb::handle_t<BoundReplay> self, std::int64_t replica) {
                return nb::cast<const BoundReplay&>(self).bytes(replica, self);
            },
            nb::arg("replica"), nb::sig("def bytes(self, replica: int) -> numpy.typing.NDArray[numpy.uint8]"))
        .def("offsets", &BoundReplay::offsets)
        .def_prop_ro("nbytes", &BoundReplay::nbytes);

    module.def("row_nbytes", &row_nbytes, nb::arg("fields"));
    module.def("sampler_nbytes", &sampler_nbytes, nb::arg("sampler"), nb::arg("capacity"));
}

}  // namespace replaylab
