// A declaration as Python gives it, as the core takes it.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/array_args.hpp"
#include "replay/replay.hpp"

namespace replaylab {

using FieldTuple = std::tuple<std::string, std::vector<std::int64_t>, nb::object, bool>;

inline std::vector<Column> columns_of(const std::vector<FieldBorder>& fields) {
    std::vector<Column> columns;
    for (const FieldBorder& field : fields) columns.push_back(field.column());
    return columns;
}

inline std::vector<FieldBorder> borders_of(const std::vector<FieldTuple>& fields) {
    std::vector<FieldBorder> borders;
    for (const auto& [name, shape, dtype, compressed] : fields)
        borders.emplace_back(name, shape, dtype, compressed);
    return borders;
}

inline ReplayConfig config_of(const std::vector<FieldBorder>& fields, std::int64_t capacity,
                              std::int64_t replicas, std::int64_t num_envs, const SamplerConfig& sampler,
                              const TransformConfig& transforms, Retention retention, bool count_replays) {
    ReplayConfig config;
    config.fields = columns_of(fields);
    config.capacity = capacity;
    config.replicas = std::max<std::int64_t>(replicas, 1);
    config.num_envs = std::max<std::int64_t>(num_envs, 1);
    config.sampler = sampler;
    config.transforms = transforms;
    config.count_replays = count_replays;
    config.retention = retention;
    return config;
}

// Raises what a signal's handler raises.
inline void see_to_signals() {
    if (with_gil([] { return PyErr_CheckSignals(); }) != 0) nb::raise_python_error();
}

// Waits until it is over, and sees to signals meanwhile, so that Ctrl-C is heard.
template <typename Over>
void wait_heard(Over over) {
    for (;;) {
        {
            const WithoutGil no_gil;
            if (over()) return;
        }
        see_to_signals();
    }
}

// Opens the rows outside that a declaration asks for. Called without the GIL.
inline std::unique_ptr<MappedRows> rows_outside(MappedConfig asked, const ReplayConfig& config) {
    asked.capacity = config.capacity;
    asked.replicas = config.replicas;
    asked.num_envs = config.num_envs;
    asked.stride = config.row_nbytes();
    asked.interrupted = [] {  // called without the GIL
        struct Gil {
            PyGILState_STATE before = with_gil([] { return PyGILState_Ensure(); });
            ~Gil() { PyGILState_Release(before); }
        } const gil;
        see_to_signals();
    };
    return std::make_unique<MappedRows>(asked);
}

}  // namespace replaylab
