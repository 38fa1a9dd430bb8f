// What Python sees of the core, name by name.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <type_traits>

#include "bindings/bound_replay.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

// Plain C methods, because nanobind has none that take keywords without making a dict of them.
PyObject* add_by_name(const char* call, bool many_steps, PyObject* self, PyObject* const* values,
                      Py_ssize_t positional, PyObject* names) {
    if (positional != 0)
        return PyErr_Format(PyExc_TypeError,
                            "`%s` takes every field by its name, as in %s(obs=..., action=...)", call, call);
    try {
        return nb::inst_ptr<BoundReplay>(self)->add_by_name(call, many_steps, values, names).release().ptr();
    } catch (const std::exception&) {
        set_python_error_of_any();
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

// Bytes of one row, and of one replica (taken at once, and at most on top), without taking them.
std::int64_t row_nbytes(const std::vector<FieldTuple>& fields, const TransformConfig& transforms) {
    return config_of(borders_of(fields), 1, 1, 1, SamplerConfig{}, transforms, Retention::fifo, false)
        .row_nbytes();
}

// Where each of these fields would lie in a row.
std::vector<std::int64_t> row_offsets(const std::vector<FieldTuple>& fields) {
    std::vector<Column> columns = columns_of(borders_of(fields));
    RowStore::lay_out(columns);
    std::vector<std::int64_t> offsets;
    for (const Column& column : columns) offsets.push_back(column.offset);
    return offsets;
}

// Throws where numbers of slots would not fit into what keeps them.
void check_capacity(const ReplayConfig& config) {
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const TransformConfig& transforms = config.transforms;
    const bool numbered = has(config.sampler, &SamplerKind::slots_in_32_bits) ||
                          has(config.sampler, &SamplerKind::episodes) || transforms.looks_around() ||
                          transforms.derived;
    if (numbered && config.capacity >= kMost)
        fail("ConfigError", "`capacity` must be below ", kMost,
             " for samplers by rank or by episode, for transforms and for next_obs=\"derived\", which keep "
             "32-bit numbers of steps, but got ",
             config.capacity, "; use a smaller capacity, or several buffers and MixedReplay");
}

std::tuple<std::int64_t, std::int64_t> replica_nbytes(const std::vector<FieldTuple>& fields,
                                                      std::int64_t capacity, std::int64_t num_envs,
                                                      const SamplerConfig& sampler,
                                                      const TransformConfig& transforms, Retention retention,
                                                      bool count_replays) {
    const ReplayConfig config =
        config_of(borders_of(fields), capacity, 1, num_envs, sampler, transforms, retention, count_replays);
    check_capacity(config);
    return {config.nbytes(), config.grown_nbytes(num_envs)};
}

void bind_sampler_config(nb::module_& module) {
    nb::class_<SamplerConfig>(module, "SamplerConfig", "What the core needs to know of a sampler.")
        .def(
            "__init__",
            [](SamplerConfig* self, std::string kind, std::map<std::string, double> options,
               std::vector<SamplerConfig> parts, std::string clock) {
                new (self)
                    SamplerConfig{std::move(kind), std::move(options), std::move(parts), std::move(clock)};
            },
            nb::arg("kind"), nb::arg("options") = std::map<std::string, double>{},
            nb::arg("parts") = std::vector<SamplerConfig>{}, nb::arg("clock") = "")
        .def_ro("kind", &SamplerConfig::kind)
        .def_prop_ro(
            "feedback", [](const SamplerConfig& config) { return has(config, &SamplerKind::feedback); },
            "Whether the core's sampler takes feedback.")
        .def_prop_ro("priorities", &priorities_of,
                     "Which array of the sampler's state holds priorities; \"\" where it keeps none.")
        .def_prop_ro(
            "episodes", [](const SamplerConfig& config) { return has(config, &SamplerKind::episodes); },
            "Whether the core's sampler goes by episodes.");
    module.def(
        "sampler_kinds",
        [] {
            std::vector<std::string> names;
            for (const SamplerKind& kind : sampler_kinds()) names.emplace_back(kind.name);
            return names;
        },
        "The kinds of sampler that the core has.");
}

void bind_transform_config(nb::module_& module) {
    nb::class_<TransformConfig>(module, "TransformConfig", "What the core needs to know of the transforms.")
        .def(nb::init<>())
        .def_rw("n_step", &TransformConfig::n_step)
        .def_rw("gamma", &TransformConfig::gamma)
        .def_rw("last", &TransformConfig::last)
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
}

void bind_storage_config(nb::module_& module) {
    nb::class_<MappedConfig>(module, "StorageConfig", "Where rows lie that are not in this process's memory.")
        .def(nb::init<>())
        .def_rw("path", &MappedConfig::path)
        .def_rw("declaration", &MappedConfig::declaration)
        .def_rw("headroom", &MappedConfig::headroom)
        .def_rw("writers", &MappedConfig::writers)
        .def_rw("memory", &MappedConfig::memory)
        .def_rw("may_create", &MappedConfig::may_create)
        .def_rw("may_open", &MappedConfig::may_open);
}

void bind_handles(nb::module_& module) {
    nb::class_<Frozen>(module, "Frozen", "Rows that stay as they are, and all else as it was then.")
        .def_ro("state", &Frozen::state, nb::sig("def state(self) -> dict[str, typing.Any]"))
        .def("end", &Frozen::end, nb::lock_self());

    nb::class_<PendingDraw>(module, "PendingDraw", "A draw to be made ahead.")
        .def("made", &PendingDraw::made, nb::lock_self());
}

using ReplayClass = nb::class_<BoundReplay>;

// Calls a member of the replay, or of its lock, without Python's lock.
template <auto Member>
auto unlocked(BoundReplay& self) {
    const WithoutGil no_gil;
    if constexpr (std::is_invocable_v<decltype(Member), Replay&>)
        return (self.replay().*Member)();
    else
        return (self.replay().lock().*Member)();
}

// What stores, draws and asks.
void bind_calls(ReplayClass& replay) {
    replay
        .def(nb::init<const std::vector<FieldTuple>&, std::int64_t, std::int64_t, std::int64_t,
                      const SamplerConfig&, const std::vector<std::vector<std::uint64_t>>&, bool,
                      const TransformConfig&, Retention, bool, std::int64_t, const MappedConfig*, bool>(),
             nb::arg("fields"), nb::arg("capacity"), nb::arg("replicas"), nb::arg("num_envs"),
             nb::arg("sampler"), nb::arg("streams"), nb::arg("skip_after_end"), nb::arg("transforms"),
             nb::arg("retention"), nb::arg("count_replays"), nb::arg("min_size"), nb::arg("storage").none(),
             nb::arg("rows_elsewhere"))
        .def("assign", &BoundReplay::assign, nb::arg("slots").none(),
             nb::sig("def assign(self, slots: object) -> numpy.typing.NDArray[numpy.int64]"))
        .def("add", &BoundReplay::add, nb::arg("values"), nb::arg("where").none(),
             nb::sig("def add(self, values: dict[str, typing.Any], where: typing.Any) -> typing.Any"))
        .def("extend", &BoundReplay::extend, nb::arg("values"), nb::arg("where").none(), nb::arg("steps"),
             nb::sig("def extend(self, values: dict[str, typing.Any], where: typing.Any, steps: int) -> "
                     "typing.Any"))
        .def("sample", &BoundReplay::sample, nb::arg("batch"), nb::arg("scheduled"), nb::arg("out").none(),
             nb::arg("counted") = true,
             nb::sig("def sample(self, batch: int, scheduled: collections.abc.Sequence[float], out: "
                     "dict[str, typing.Any] | None, counted: bool = True) -> "
                     "dict[str, typing.Any]"))
        .def(
            "check_draw", [](BoundReplay& self, std::int64_t batch) { self.replay().check_draw(batch); },
            nb::arg("batch"), nb::call_guard<WithoutGil>())
        .def("reseed", &BoundReplay::reseed, nb::arg("streams"), "Give each replica another random stream.")
        .def("check_streams", &unlocked<&Replay::check_streams>,
             "Raise ConfigError while the random streams are copies of another process's.")
        .def_prop_ro("streams_copied", &unlocked<&Replay::streams_copied>)
        .def("set_streams_copied", &unlocked<&Replay::set_streams_copied>)
        .def("count", &BoundReplay::count, nb::arg("ids"), nb::sig("def count(self, ids: object) -> None"))
        .def("gather", &BoundReplay::gather, nb::arg("ids").none(), nb::arg("transformed"),
             nb::arg("aside") = false,
             nb::sig("def gather(self, ids: object, transformed: bool, aside: bool = False) -> "
                     "dict[str, typing.Any]"))
        .def("blocks", &BoundReplay::blocks, nb::arg("ids").none(), nb::arg("first_alone"),
             nb::sig("def blocks(self, ids: object, first_alone: bool) -> numpy.typing.NDArray[numpy.int64]"))
        .def("environments", &BoundReplay::environments, nb::arg("ids").none(),
             nb::sig("def environments(self, ids: object) -> numpy.typing.NDArray[numpy.int64]"))
        .def("open_steps", &unlocked<&Replay::open_steps>)
        .def(
            "ask_to_continue",
            [](BoundReplay& self, bool open_matters) { self.replay().ask_to_continue(open_matters); },
            nb::arg("open_matters"), nb::call_guard<WithoutGil>(),
            "Let `add` raise until it is decided whether open episodes continue.")
        .def("asks_to_continue", &unlocked<&Replay::asks_to_continue>)
        .def("clear", &BoundReplay::clear)
        .def("next_steps", &BoundReplay::next_steps,
             nb::sig("def next_steps(self) -> tuple[numpy.typing.NDArray[numpy.bool_], "
                     "numpy.typing.NDArray[numpy.bool_]]"))
        .def("end_episode", &BoundReplay::end_episode, nb::arg("where").none())
        .def("update", &BoundReplay::update, nb::arg("ids").none(), nb::arg("values"), nb::arg("td_errors"))
        .def("write", &BoundReplay::write, nb::arg("ids").none(), nb::arg("values"),
             nb::sig("def write(self, ids: object, values: dict[str, typing.Any]) -> int"))
        .def("remove", &BoundReplay::remove, nb::arg("ids").none(),
             nb::sig("def remove(self, ids: object) -> int"))
        .def("probabilities", &BoundReplay::probabilities, nb::arg("ids").none(), nb::arg("batch"),
             nb::arg("scheduled"),
             nb::sig("def probabilities(self, ids: object, batch: int, scheduled: "
                     "collections.abc.Sequence[float]) -> numpy.typing.NDArray[numpy.float64]"))
        .def("totals",
             [](BoundReplay& self) {
                 self.await_draws();
                 std::vector<std::tuple<double, double, std::int64_t>> found;
                 const WithoutGil no_gil;
                 for (const SamplingTotals& one : self.replay().totals())
                     found.emplace_back(one.total, one.least, one.rows);
                 return found;
             })
        .def("counts", &BoundReplay::counts, nb::sig("def counts(self) -> tuple[list[int], list[int]]"));
}

// What holds calls back: saves, and draws made ahead.
void bind_turns(ReplayClass& replay) {
    replay
        .def("freeze",
             [](nb::handle_t<BoundReplay> self) {
                 BoundReplay& own = nb::cast<BoundReplay&>(self);
                 return own.freeze(nb::borrow<nb::object>(self));
             })
        .def("frozen_elsewhere", &unlocked<&ReplayLock::frozen_elsewhere>,
             "Whether another thread lets the rows stay as they are.")
        .def("await_thaw", &BoundReplay::await_thaw)
        .def(
            "ask",
            [](nb::handle_t<BoundReplay> self) {
                BoundReplay& own = nb::cast<BoundReplay&>(self);
                return own.ask(nb::borrow<nb::object>(self));
            },
            "A draw will be made ahead: until then, what it depends on, or changes, waits.")
        .def("await_draws", &BoundReplay::await_draws)
        .def("enter", &unlocked<&ReplayLock::enter>,
             "This thread makes draws, or one that does waits for it.")
        .def("leave", &unlocked<&ReplayLock::leave>);
}

// What a save reads and a restore writes, and what is known of the rows.
void bind_contents(ReplayClass& replay) {
    replay
        .def(
            "column",
            [](nb::handle_t<BoundReplay> self, std::size_t index) {
                return nb::cast<const BoundReplay&>(self).column(index, self);
            },
            nb::arg("index"))
        .def("state", &BoundReplay::state, nb::sig("def state(self) -> dict[str, typing.Any]"))
        .def("hand_over", &BoundReplay::hand_over, nb::arg("successor"),
             nb::sig("def hand_over(self, successor: Replay) -> None"),
             "Let steps that are added here by name go to the one that takes this one's place.")
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
        .def("settle", &unlocked<&Replay::settle>)
        .def("offsets", &BoundReplay::offsets)
        .def("flush", &unlocked<&Replay::flush>)
        .def("close", &unlocked<&Replay::close>)
        .def_prop_ro("row_stride", [](BoundReplay& self) { return self.replay().rows().stride(); })
        .def_prop_ro("storage_identity", &BoundReplay::storage_identity)
        .def_prop_ro("storage_was_unflushed", &BoundReplay::storage_was_unflushed)
        .def_prop_ro("nbytes", &unlocked<&Replay::nbytes>);
}

void bind_functions(nb::module_& module) {
    module.def(
        "concatenate",
        [](nb::handle arrays) {
            const UseBatchMemory memory;
            return nb::module_::import_("numpy").attr("concatenate")(arrays);
        },
        nb::arg("arrays"),
        nb::sig("def concatenate(arrays: Sequence[numpy.typing.NDArray[Any]]) -> numpy.typing.NDArray[Any]"));
    module.def("row_nbytes", &row_nbytes, nb::arg("fields"), nb::arg("transforms"));
    module.def("row_offsets", &row_offsets, nb::arg("fields"));
    module.def(
        "storage_declaration",
        [](const std::string& path) {
            const std::string text = MappedRows::declaration_of(path);  // of any bytes
            return nb::bytes(text.data(), text.size());
        },
        nb::arg("path"));
    module.def("replica_nbytes", &replica_nbytes, nb::arg("fields"), nb::arg("capacity"), nb::arg("num_envs"),
               nb::arg("sampler"), nb::arg("transforms"), nb::arg("retention"), nb::arg("count_replays"));
}

}  // namespace

void bind_replay(nb::module_& module) {
    nb::enum_<Retention>(module, "Retention", "What is kept when there is no more room.")
        .value("FIFO", Retention::fifo)
        .value("RESERVOIR", Retention::reservoir)
        .value("ASSIGNED", Retention::assigned);
    bind_sampler_config(module);
    bind_transform_config(module);
    bind_storage_config(module);
    bind_handles(module);
    ReplayClass replay(module, "Replay", nb::type_slots(replay_slots),
                       "The compiled part of a ReplayBuffer.");
    bind_calls(replay);
    bind_turns(replay);
    bind_contents(replay);
    bind_functions(module);
}

}  // namespace replaylab
