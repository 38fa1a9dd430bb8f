// The one compiled class Python sees: a Replay behind the border.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <tuple>

#include "batch_memory.hpp"
#include "border.hpp"
#include "error.hpp"
#include "replay.hpp"

namespace replaylab {

namespace {

using FieldTuple = std::tuple<std::string, std::vector<std::int64_t>, nb::object, bool>;

std::vector<Column> columns_of(const std::vector<FieldBorder>& fields) {
    std::vector<Column> columns;
    for (const FieldBorder& field : fields) columns.push_back(field.column());
    return columns;
}

std::vector<FieldBorder> borders_of(const std::vector<FieldTuple>& fields) {
    std::vector<FieldBorder> borders;
    for (const auto& [name, shape, dtype, compressed] : fields)
        borders.emplace_back(name, shape, dtype, compressed);
    return borders;
}

ReplayConfig config_of(const std::vector<FieldBorder>& fields, std::int64_t capacity, std::int64_t replicas,
                       std::int64_t num_envs, const SamplerConfig& sampler, const TransformConfig& transforms,
                       bool reservoir, bool count_replays) {
    ReplayConfig config;
    config.fields = columns_of(fields);
    config.capacity = capacity;
    config.replicas = std::max<std::int64_t>(replicas, 1);
    config.num_envs = std::max<std::int64_t>(num_envs, 1);
    config.sampler = sampler;
    config.transforms = transforms;
    config.count_replays = count_replays;
    config.retention = reservoir ? Retention::reservoir : Retention::fifo;
    return config;
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
    void words(const std::string& name, std::vector<std::uint32_t>& values) override {
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
    void words(const std::string& name, std::vector<std::uint32_t>& values) override { take(name, values); }
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
                const TransformConfig& transforms, bool reservoir, bool count_replays,
                const MappedConfig* storage)
        : fields_(borders_of(fields)), replicas_(replicas), num_envs_(num_envs) {
        ReplayConfig config =
            config_of(fields_, capacity, replicas, num_envs, sampler, transforms, reservoir, count_replays);
        for (const auto& words : streams)
            config.streams.push_back({words.at(0), words.at(1), words.at(2), words.at(3)});
        config.skip_after_end = skip_after_end;
        if (storage != nullptr) {
            MappedConfig asked = *storage;
            asked.capacity = config.capacity;
            asked.replicas = config.replicas;
            asked.num_envs = config.num_envs;
            asked.stride = Replay::row_nbytes(config);
            config.outside = std::make_unique<MappedRows>(asked);
        }
        replay_ = std::make_unique<Replay>(std::move(config));
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
        const auto put = [&](const FieldBorder& field, const std::vector<std::int64_t>& axes, char*& data) {
            nb::object own = nb::none();
            if (!out.is_none()) {
                PyObject* given = PyDict_GetItemWithError(out.ptr(), field.key().ptr());
                if (given == nullptr)
                    fail("FieldError", "`out` has no field `", field.column().name,
                         "`; pass a batch that an equal call to sample returned");
                own = nb::borrow<nb::object>(given);
            }
            made[field.key()] = field.target(joined(dims, axes), own, data);
        };
        ExtraTargets extra;
        {
            const UseBatchMemory memory;
            put_all(put, targets, extra);
            put(weight_, {}, weights);
            put(probability_, {}, probabilities);
            put(id_, {}, ids);
        }
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
        const auto put = [&](const FieldBorder& field, const std::vector<std::int64_t>& axes, char*& data) {
            made[field.key()] = field.target(joined(flat.dims, axes), nb::none(), data);
        };
        ExtraTargets extra;
        {
            const UseBatchMemory memory;
            if (transformed)
                put_all(put, targets, extra);
            else
                for (std::size_t f = 0; f < fields_.size(); ++f) put(fields_[f], {}, targets[f]);
        }
        const nb::gil_scoped_release no_gil;
        replay_->gather(flat.data, flat.size / replay_->replicas(), transformed, targets.data(), extra);
        return made;
    }

    nb::object blocks(nb::handle ids) {
        const auto flat = read_ids(ids, replicas_);
        char* data;
        nb::object made =
            id_.target(joined(flat.dims, {replay_->assembly().config().stride}), nb::none(), data);
        const nb::gil_scoped_release no_gil;
        replay_->blocks(flat.data, flat.size / replay_->replicas(), reinterpret_cast<std::int64_t*>(data));
        return made;
    }

    void cut(nb::handle where) {
        Input input;
        const bool* given = nullptr;
        if (!where.is_none()) {
            where_.read(where, Leading{replicas_, -1, num_envs_}, input);
            given = reinterpret_cast<const bool*>(input.data);
        }
        const nb::gil_scoped_release no_gil;
        replay_->cut(given);
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

    // The rows of one field, None if they do not hold it.
    nb::object column(std::size_t index, nb::handle owner) const {
        const Shown& shown = replay_->assembly().shown().at(index);
        const RowStore& rows = replay_->rows();
        if (shown.of_next || rows.columns()[static_cast<std::size_t>(shown.column)].compressed)
            return nb::none();
        std::vector<std::int64_t> dims, strides;
        if (replicas_ >= 0) {
            dims.push_back(replicas_);
            strides.push_back(rows.rows() * rows.stride());
        }
        dims.push_back(rows.capacity());
        strides.push_back(rows.stride());
        return fields_.at(index).view(
            rows.row(0, 0) + rows.columns()[static_cast<std::size_t>(shown.column)].offset, dims, strides,
            owner);
    }

    std::int64_t nbytes() const { return replay_->nbytes(); }

    std::int64_t row_stride() const { return replay_->rows().stride(); }

    // Of rows outside: empty and 0 where there are none.
    std::string storage_identity() const {
        return replay_->outside() != nullptr ? replay_->outside()->identity() : std::string();
    }
    std::int64_t storage_nbytes() const {
        return replay_->outside() != nullptr ? replay_->outside()->file_bytes() : 0;
    }
    void flush() {
        const nb::gil_scoped_release no_gil;
        replay_->flush();
    }
    void close() {
        const nb::gil_scoped_release no_gil;
        replay_->close();
    }

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
        if (!replay_->find_rows())
            fail("SnapshotError",
                 "the storage holds fewer steps than when the snapshot was saved; it was made "
                 "anew, or put back to an earlier state, and does not belong to this snapshot");
    }

    // The packed bytes of one replica's compressed fields, by segment: field, serial, writable bytes.
    nb::list packed(std::int64_t replica, nb::handle owner) const {
        nb::list parts;
        const RowStore& rows = replay_->rows();
        for (std::size_t f = 0; f < fields_.size() && rows.compressed(); ++f) {
            const Shown& shown = replay_->assembly().shown()[f];
            const auto column = static_cast<std::size_t>(shown.column);
            if (shown.of_next || !rows.columns()[column].compressed) continue;
            for (const PackedLog::Part& part : rows.log(replica, column).parts())
                parts.append(nb::make_tuple(f, part.serial, bytes_view(part.data, 1, part.used, owner)));
        }
        return parts;
    }

    void settle() { replay_->settle(); }

    // All rows of one replica as bytes (C, stride), writable.
    nb::object bytes(std::int64_t replica, nb::handle owner) const {
        const RowStore& rows = replay_->rows();
        return bytes_view(rows.row(replica, 0), rows.capacity(), rows.stride(), owner);
    }

    // Where each field lies in a row, −1 for one that is not stored.
    std::vector<std::int64_t> offsets() const {
        std::vector<std::int64_t> offsets;
        for (const Shown& shown : replay_->assembly().shown())
            offsets.push_back(shown.of_next
                                  ? -1
                                  : replay_->rows().columns()[static_cast<std::size_t>(shown.column)].offset);
        return offsets;
    }

  private:
    // Makes the arrays of a batch: every field, and what the transforms add.
    template <typename Put>
    void put_all(const Put& put, std::vector<char*>& targets, ExtraTargets& extra) const {
        const Assembly& assembly = replay_->assembly();
        const TransformConfig& config = assembly.config();
        for (std::size_t f = 0; f < fields_.size(); ++f) put(fields_[f], assembly.axes(f), targets[f]);
        std::vector<std::int64_t> axes;
        if (config.length > 0) axes.push_back(assembly.steps());
        char* data;
        if (config.n_step > 0 && !assembly.inner()) {
            put(discount_, axes, data);
            extra.discount = reinterpret_cast<float*>(data);
        }
        if (config.n_step > 0) {
            put(steps_, axes, data);
            extra.n_steps = reinterpret_cast<std::int64_t*>(data);
        }
        if (config.length > 0) {
            put(mask_, axes, data);
            extra.mask = reinterpret_cast<bool*>(data);
        }
        if (config.strategy != Strategy::none) {
            put(relabelled_, {}, data);
            extra.relabelled = reinterpret_cast<bool*>(data);
        }
    }

    static std::vector<std::int64_t> joined(std::vector<std::int64_t> dims,
                                            const std::vector<std::int64_t>& axes) {
        dims.insert(dims.end(), axes.begin(), axes.end());
        return dims;
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
    std::int64_t replicas_, num_envs_;
    FieldBorder discount_ = float32_field("discount");
    FieldBorder steps_ = int64_field("n_steps");
    FieldBorder mask_ = bool_field("mask");
    FieldBorder relabelled_ = bool_field("relabelled");
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

// Bytes of one row, and of one replica, without taking them.
std::int64_t row_nbytes(const std::vector<FieldTuple>& fields, const TransformConfig& transforms) {
    ReplayConfig config = config_of(borders_of(fields), 1, 1, 1, SamplerConfig{}, transforms, false, false);
    return Replay::row_nbytes(config);
}

// Where each of these fields would lie in a row.
std::vector<std::int64_t> row_offsets(const std::vector<FieldTuple>& fields) {
    std::vector<Column> columns = columns_of(borders_of(fields));
    RowStore::lay_out(columns);
    std::vector<std::int64_t> offsets;
    for (const Column& column : columns) offsets.push_back(column.offset);
    return offsets;
}

std::int64_t replica_nbytes(const std::vector<FieldTuple>& fields, std::int64_t capacity,
                            std::int64_t num_envs, const SamplerConfig& sampler,
                            const TransformConfig& transforms, bool reservoir, bool count_replays) {
    return Replay::nbytes(
        config_of(borders_of(fields), capacity, 1, num_envs, sampler, transforms, reservoir, count_replays));
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

    nb::class_<TransformConfig>(module, "TransformConfig", "What the core needs to know of the transforms.")
        .def(nb::init<>())
        .def_rw("n_step", &TransformConfig::n_step)
        .def_rw("gamma", &TransformConfig::gamma)
        .def_rw("frames", &TransformConfig::frames)
        .def_rw("repeat", &TransformConfig::repeat)
        .def_rw("stacked", &TransformConfig::stacked)
        .def_rw("length", &TransformConfig::length)
        .def_rw("stride", &TransformConfig::stride)
        .def_rw("burn_in", &TransformConfig::burn_in)
        .def_rw("states", &TransformConfig::states)
        .def_prop_rw(
            "strategy", [](const TransformConfig& config) { return static_cast<int>(config.strategy); },
            [](TransformConfig& config, int strategy) { config.strategy = static_cast<Strategy>(strategy); })
        .def_rw("share", &TransformConfig::share)
        .def_rw("achieved", &TransformConfig::achieved)
        .def_rw("desired", &TransformConfig::desired)
        .def_rw("derived", &TransformConfig::derived)
        .def_rw("partners", &TransformConfig::partners);

    nb::class_<MappedConfig>(module, "StorageConfig", "Where rows lie that are not in this process's memory.")
        .def(nb::init<>())
        .def_rw("path", &MappedConfig::path)
        .def_rw("declaration", &MappedConfig::declaration)
        .def_rw("headroom", &MappedConfig::headroom)
        .def_rw("writers", &MappedConfig::writers)
        .def_rw("memory", &MappedConfig::memory)
        .def_rw("may_create", &MappedConfig::may_create)
        .def_rw("may_open", &MappedConfig::may_open)
        .def_rw("after_crash", &MappedConfig::after_crash);

    nb::class_<BoundReplay>(module, "Replay", nb::type_slots(replay_slots),
                            "The compiled part of a ReplayBuffer.")
        .def(nb::init<const std::vector<FieldTuple>&, std::int64_t, std::int64_t, std::int64_t,
                      const SamplerConfig&, const std::vector<std::vector<std::uint64_t>>&, bool,
                      const TransformConfig&, bool, bool, const MappedConfig*>(),
             nb::arg("fields"), nb::arg("capacity"), nb::arg("replicas"), nb::arg("num_envs"),
             nb::arg("sampler"), nb::arg("streams"), nb::arg("skip_after_end"), nb::arg("transforms"),
             nb::arg("reservoir"), nb::arg("count_replays"), nb::arg("storage").none())
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
        .def("blocks", &BoundReplay::blocks, nb::arg("ids"),
             nb::sig("def blocks(self, ids: object) -> numpy.typing.NDArray[numpy.int64]"))
        .def("cut", &BoundReplay::cut, nb::arg("where").none())
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
        .def(
            "packed",
            [](nb::handle_t<BoundReplay> self, std::int64_t replica) {
                return nb::cast<const BoundReplay&>(self).packed(replica, self);
            },
            nb::arg("replica"),
            nb::sig("def packed(self, replica: int) -> list[tuple[int, int, "
                    "numpy.typing.NDArray[numpy.uint8]]]"))
        .def("settle", &BoundReplay::settle)
        .def("offsets", &BoundReplay::offsets)
        .def("flush", &BoundReplay::flush)
        .def("close", &BoundReplay::close)
        .def_prop_ro("row_stride", &BoundReplay::row_stride)
        .def_prop_ro("storage_identity", &BoundReplay::storage_identity)
        .def_prop_ro("storage_nbytes", &BoundReplay::storage_nbytes)
        .def_prop_ro("nbytes", &BoundReplay::nbytes);

    module.def("row_nbytes", &row_nbytes, nb::arg("fields"), nb::arg("transforms"));
    module.def("row_offsets", &row_offsets, nb::arg("fields"));
    module.def("storage_declaration", &MappedRows::declaration_of, nb::arg("path"));
    module.def("replica_nbytes", &replica_nbytes, nb::arg("fields"), nb::arg("capacity"), nb::arg("num_envs"),
               nb::arg("sampler"), nb::arg("transforms"), nb::arg("reservoir"), nb::arg("count_replays"));
}

}  // namespace replaylab
