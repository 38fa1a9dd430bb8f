// The one compiled class Python sees: a Replay behind the border.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

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

class BoundReplay {
  public:
    // replicas and num_envs are −1 where they were not declared: then their axis does not exist.
    BoundReplay(const std::vector<FieldTuple>& fields, std::int64_t capacity, std::int64_t replicas,
                std::int64_t num_envs, const SamplerConfig& sampler,
                const std::vector<std::vector<std::uint64_t>>& streams, bool skip_after_end)
        : fields_(borders_of(fields)), replicas_(replicas), num_envs_(num_envs) {
        std::vector<Random::State> states;
        for (const auto& words : streams) states.push_back({words.at(0), words.at(1), words.at(2), words.at(3)});
        replay_ = std::make_unique<Replay>(columns_of(fields_), capacity, replicas < 0 ? 1 : replicas,
                                           num_envs < 0 ? 1 : num_envs, sampler, states, skip_after_end);
        // The row store decides the offsets.
        columns_ = replay_->rows().columns();
    }

    nb::object add(nb::dict values, nb::handle where) { return store(values, where, Leading{replicas_, -1, num_envs_}); }

    nb::object extend(nb::dict values, nb::handle where) {
        Leading leading{replicas_, -1, num_envs_};
        leading.steps = fields_[0].steps_of(value_of(values, fields_[0]), leading);
        return store(values, where, leading);
    }

    nb::dict sample(std::int64_t batch, double beta, nb::handle out) {
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
        put(weight_, weights);
        put(probability_, probabilities);
        put(id_, ids);
        {
            const nb::gil_scoped_release no_gil;
            replay_->sample(batch, beta, targets.data(), reinterpret_cast<std::int64_t*>(ids),
                            reinterpret_cast<double*>(probabilities), reinterpret_cast<float*>(weights));
        }
        return made;
    }

    std::int64_t update(nb::handle ids, nb::handle values, bool td_errors) {
        const Flat flat = read_ids(ids, replicas_);
        const Flat fed = read_values(values, flat, td_errors ? "td_error" : "priority");
        const nb::gil_scoped_release no_gil;
        return replay_->update(static_cast<const std::int64_t*>(flat.data), static_cast<const double*>(fed.data),
                               flat.size / replay_->replicas(), td_errors);
    }

    nb::object probabilities(nb::handle ids, std::int64_t batch) const {
        const Flat flat = read_ids(ids, replicas_);
        double* data;
        nb::object made = new_float64(flat.dims, data);
        const nb::gil_scoped_release no_gil;
        replay_->probabilities(static_cast<const std::int64_t*>(flat.data), flat.size / replay_->replicas(), batch,
                               data);
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

  private:
    static nb::handle value_of(const nb::dict& values, const FieldBorder& field) {
        PyObject* value = PyDict_GetItemWithError(values.ptr(), field.key().ptr());
        if (value == nullptr) fail("FieldError", "missing field `", field.column().name, "`");
        return value;
    }

    nb::object store(const nb::dict& values, nb::handle where, const Leading& leading) {
        std::vector<Input> inputs(fields_.size());
        std::vector<const char*> sources(fields_.size());
        for (std::size_t c = 0; c < fields_.size(); ++c) {
            fields_[c].read(value_of(values, fields_[c]), leading, inputs[c]);
            sources[c] = inputs[c].data;
        }
        if (nb::len(values) != fields_.size()) fail("FieldError", "an unknown field was given");
        Input mask;
        if (!where.is_none()) where_.read(where, leading, mask);
        const std::int64_t steps = leading.steps < 0 ? 1 : leading.steps;
        const auto* kept = reinterpret_cast<const bool*>(mask.data);
        const std::vector<std::int64_t> dims = leading.dims();
        if (dims.empty()) {
            std::int64_t id;
            replay_add(sources.data(), steps, kept, &id);
            return nb::int_(id);
        }
        char* ids;
        nb::object made = id_.target(dims, nb::none(), ids);
        replay_add(sources.data(), steps, kept, reinterpret_cast<std::int64_t*>(ids));
        return made;
    }

    void replay_add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids) {
        const nb::gil_scoped_release no_gil;
        replay_->add(sources, steps, where, ids);
    }

    std::vector<FieldBorder> fields_;
    std::vector<Column> columns_;
    std::int64_t replicas_, num_envs_;
    FieldBorder weight_ = float32_field("weight");
    FieldBorder probability_ = float64_field("probability");
    FieldBorder id_ = int64_field("id");
    FieldBorder where_ = bool_field("where");
    std::unique_ptr<Replay> replay_;
};

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
            [](SamplerConfig* self, std::string kind, double alpha, double epsilon, std::string normalize) {
                new (self) SamplerConfig{std::move(kind), alpha, epsilon, std::move(normalize)};
            },
            nb::arg("kind"), nb::arg("alpha") = 0.0, nb::arg("epsilon") = 0.0, nb::arg("normalize") = "buffer");

    nb::class_<BoundReplay>(module, "Replay", "The compiled part of a ReplayBuffer.")
        .def(nb::init<const std::vector<FieldTuple>&, std::int64_t, std::int64_t, std::int64_t, const SamplerConfig&,
                      const std::vector<std::vector<std::uint64_t>>&, bool>(),
             nb::arg("fields"), nb::arg("capacity"), nb::arg("replicas"), nb::arg("num_envs"), nb::arg("sampler"),
             nb::arg("streams"), nb::arg("skip_after_end"))
        .def("add", &BoundReplay::add, nb::arg("values"), nb::arg("where").none())
        .def("extend", &BoundReplay::extend, nb::arg("values"), nb::arg("where").none())
        .def("sample", &BoundReplay::sample, nb::arg("batch"), nb::arg("beta"), nb::arg("out").none())
        .def("update", &BoundReplay::update, nb::arg("ids"), nb::arg("values"), nb::arg("td_errors"))
        .def("probabilities", &BoundReplay::probabilities, nb::arg("ids"), nb::arg("batch"))
        .def("counts", &BoundReplay::counts)
        .def("column", [](nb::handle_t<BoundReplay> self, std::size_t index) {
            return nb::cast<const BoundReplay&>(self).column(index, self);
        }, nb::arg("index"))
        .def_prop_ro("nbytes", &BoundReplay::nbytes);

    module.def("row_nbytes", &row_nbytes, nb::arg("fields"));
    module.def("sampler_nbytes", &Sampler::nbytes, nb::arg("sampler"), nb::arg("capacity"));
}

}  // namespace replaylab
