// The one compiled class Python sees: a Replay behind the border.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/array_args.hpp"
#include "bindings/batch_memory.hpp"
#include "bindings/config_args.hpp"
#include "bindings/handles.hpp"
#include "bindings/state_arrays.hpp"
#include "replay/replay.hpp"
#include "support/error.hpp"
#include "support/prefetch.hpp"

namespace replaylab {

class BoundReplay {
  public:
    // replicas and num_envs are −1 where they were not declared: then their axis does not exist.
    BoundReplay(const std::vector<FieldTuple>& fields, std::int64_t capacity, std::int64_t replicas,
                std::int64_t num_envs, const SamplerConfig& sampler,
                const std::vector<std::vector<std::uint64_t>>& streams, bool skip_after_end,
                const TransformConfig& transforms, Retention retention, bool count_replays,
                std::int64_t min_size, const MappedConfig* storage, bool rows_elsewhere)
        : fields_(borders_of(fields)),
          replicas_(replicas),
          num_envs_(num_envs),
          numbers_(std::max<std::size_t>(1, sampler.parts.size())) {
        ReplayConfig config =
            config_of(fields_, capacity, replicas, num_envs, sampler, transforms, retention, count_replays);
        config.streams = states_of(streams);
        config.skip_after_end = skip_after_end;
        config.min_size = min_size;
        config.rows_elsewhere = rows_elsewhere;
        if (storage != nullptr) {
            const WithoutGil no_gil;
            config.outside = rows_outside(*storage, config);
        }
        replay_ = std::make_unique<Replay>(std::move(config));
    }

    // From now on `add_by_name` adds to `successor`: bound methods from before a restore stay valid.
    void hand_over(nb::object successor) { successor_.take(std::move(successor)); }

    nb::object add(const nb::dict& values, nb::handle where) { return extend(values, where, -1); }

    nb::object extend(const nb::dict& values, nb::handle where, std::int64_t steps) {
        await_draws();
        std::vector<Input> inputs(fields_.size());
        const Leading leading{replicas_, steps, num_envs_};
        for (std::size_t c = 0; c < fields_.size(); ++c) {
            PyObject* value = PyDict_GetItemWithError(values.ptr(), fields_[c].key().ptr());
            if (value == nullptr)
                fail("FieldError", "no value was given for `", fields_[c].column().name, "`");
            fields_[c].read(value, leading, inputs[c]);
        }
        return store(inputs.data(), where, leading);
    }

    nb::object assign(nb::handle slots) {
        await_draws();
        const auto flat = read_ids(slots, -1);
        std::int64_t* ids;
        nb::object made = new_array(id_, flat.dims, ids);
        when_thawed([&] { return replay_->assign(flat.data, flat.size, ids); });
        return made;
    }

    // add or extend (where=None, final_obs=None, **fields) as Python calls it: names in a tuple beside the
    // values, which mostly come in the declared order and, being interned, are the very same strings.
    nb::object add_by_name(const char* call, bool many_steps, PyObject* const* values, PyObject* names) {
        if (PyObject* successor = successor_.get())
            return nb::inst_ptr<BoundReplay>(successor)->add_by_name(call, many_steps, values, names);
        await_draws();
        const std::size_t given = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_Size(names));
        std::array<Input, 12> few;
        std::vector<Input> many(fields_.size() > few.size() ? fields_.size() : 0);
        Input* inputs = many.empty() ? few.data() : many.data();
        Leading leading{replicas_, -1, num_envs_};
        nb::handle where = Py_None;
        std::size_t found = 0;
        for (std::size_t i = 0; i < given; ++i) {
            PyObject* name = PyTuple_GetItem(names, i);
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

    nb::dict sample(std::int64_t batch, const std::vector<double>& scheduled, nb::handle out, bool counted) {
        await_draws();
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
            const WithoutGil no_gil;
            replay_->sample(batch, scheduled.data(), stride(scheduled), counted, targets.data(),
                            reinterpret_cast<std::int64_t*>(ids), reinterpret_cast<double*>(probabilities),
                            reinterpret_cast<float*>(weights), extra);
        }
        return made;
    }

    nb::dict gather(nb::handle ids, bool transformed, bool aside) {
        if (aside) await_draws();  // it picks as the next draw would
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
                for (std::size_t f = 0; f < shown(); ++f) put(fields_[f], {}, targets[f]);
        }
        const WithoutGil no_gil;
        replay_->gather(flat.data, flat.size / replay_->replicas(), transformed, aside, targets.data(),
                        extra);
        return made;
    }

    void reseed(const std::vector<std::vector<std::uint64_t>>& streams) {
        await_draws();
        const std::vector<Random::State> states = states_of(streams);
        const WithoutGil no_gil;
        replay_->reseed(states);
    }

    void count(nb::handle ids) {
        const auto flat = read_ids(ids, replicas_);
        const WithoutGil no_gil;
        replay_->count(flat.data, flat.size / replay_->replicas());
    }

    nb::object blocks(nb::handle ids, bool first_alone) {
        const auto flat = read_ids(ids, replicas_);
        const std::int64_t width = first_alone ? 1 : replay_->assembly().config().stride;
        std::int64_t* out;
        nb::object made = new_array(id_, joined(flat.dims, {width}), out);
        const WithoutGil no_gil;
        replay_->blocks(flat.data, flat.size / replay_->replicas(), width, out);
        return made;
    }

    nb::object environments(nb::handle ids) {
        const auto flat = read_ids(ids, replicas_);
        std::int64_t* out;
        nb::object made = new_array(id_, flat.dims, out);
        const WithoutGil no_gil;
        replay_->environments(flat.data, flat.size, out);
        return made;
    }

    nb::tuple next_steps() const {
        const std::vector<std::int64_t> dims{replay_->replicas(), std::max<std::int64_t>(num_envs_, 1)};
        bool *begins, *left_out;
        nb::object first = new_array(where_, dims, begins), second = new_array(where_, dims, left_out);
        {
            const WithoutGil no_gil;
            replay_->next_steps(begins, left_out);
        }
        return nb::make_tuple(first, second);
    }

    void clear() {
        await_draws();
        when_thawed([this] { return replay_->clear(); });
    }

    void end_episode(nb::handle where) {
        await_draws();
        Input input;
        const bool* given = nullptr;
        if (!where.is_none()) {
            where_.read(where, Leading{replicas_, -1, num_envs_}, input);
            given = reinterpret_cast<const bool*>(input.data);
        }
        const WithoutGil no_gil;
        replay_->end_episode(given);
    }

    std::int64_t update(nb::handle ids, nb::handle values, bool td_errors) {
        await_draws();
        const auto flat = read_ids(ids, replicas_);
        const auto fed = read_values(values, flat, td_errors ? "td_error" : "priority");
        const WithoutGil no_gil;
        return replay_->update(flat.data, fed.data, flat.size / replay_->replicas(), td_errors);
    }

    std::int64_t write(nb::handle ids, const nb::dict& values) {
        await_draws();
        const auto flat = read_ids(ids, replicas_);
        std::vector<Input> inputs(fields_.size());
        std::vector<const char*> sources(fields_.size(), nullptr);
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            PyObject* value = PyDict_GetItemWithError(values.ptr(), fields_[f].key().ptr());
            if (value == nullptr) continue;
            fields_[f].read_each(value, flat.dims, inputs[f]);
            copy_own(inputs[f], flat.size * fields_[f].column().bytes);
            sources[f] = inputs[f].data;
        }
        std::int64_t written = 0;
        when_thawed([&] {
            return replay_->write(flat.data, flat.size / replay_->replicas(), sources.data(), written);
        });
        return written;
    }

    std::int64_t remove(nb::handle ids) {
        await_draws();
        const auto flat = read_ids(ids, replicas_);
        const WithoutGil no_gil;
        return replay_->remove(flat.data, flat.size / replay_->replicas());
    }

    nb::object probabilities(nb::handle ids, std::int64_t batch, const std::vector<double>& scheduled) {
        await_draws();
        const auto flat = read_ids(ids, replicas_);
        double* data;
        nb::object made = new_array(probability_, flat.dims, data);
        const WithoutGil no_gil;
        replay_->probabilities(flat.data, flat.size / replay_->replicas(), batch, scheduled.data(),
                               stride(scheduled), data);
        return made;
    }

    nb::tuple counts() const {
        const auto n = static_cast<std::size_t>(replay_->replicas());
        std::vector<std::int64_t> sizes(n), next_ids(n);
        {
            const WithoutGil no_gil;
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

    Replay& replay() { return *replay_; }  // to be called without Python's lock

    // What names the storage of the rows; empty if they are in this process's memory.
    std::string storage_identity() const {
        return replay_->outside() != nullptr ? replay_->outside()->identity() : std::string();
    }
    bool storage_was_unflushed() const {
        return replay_->outside() != nullptr && replay_->outside()->was_unflushed();
    }

    // Every array but the rows, by name.
    nb::dict state() {
        await_draws();
        Saver saver;
        {
            const WithoutGil no_gil;
            replay_->copy(saver);
        }
        return saver.arrays();
    }

    // The same, and rows that stay as they are; None while another thread has that.
    std::optional<Frozen> freeze(nb::object self) {
        Saver saver;
        std::uint64_t token;
        {
            const WithoutGil no_gil;
            token = replay_->freeze(saver);
        }
        if (token == 0) return std::nullopt;
        Frozen frozen(std::move(self), *replay_, token, nb::dict());
        frozen.state = saver.arrays();
        return frozen;
    }

    NB_NOINLINE void await_thaw() {
        wait_heard([this] { return replay_->lock().wait_for_thaw(); });
    }

    PendingDraw ask(nb::object self) { return PendingDraw(std::move(self), *replay_); }
    void await_draws() {
        if (replay_->lock().drawing()) await_these(replay_->lock().asked());
    }

    void restore(nb::dict state) {
        Restorer restorer(std::move(state));
        replay_->visit(restorer);
        if (!replay_->restored())
            fail("SnapshotError",
                 "the storage holds fewer steps than when the snapshot was saved; it was made "
                 "again, or put back to an earlier state, and does not belong to this snapshot");
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
    static std::vector<Random::State> states_of(const std::vector<std::vector<std::uint64_t>>& streams) {
        std::vector<Random::State> states;
        for (const auto& words : streams)
            states.push_back({words.at(0), words.at(1), words.at(2), words.at(3)});
        return states;
    }

    // Fields that a batch holds.
    std::size_t shown() const { return replay_->assembly().shown().size(); }

    // Makes the arrays of a batch: every field, and what the transforms add.
    template <typename Put>
    void put_all(const Put& put, std::vector<char*>& targets, ExtraTargets& extra) const {
        const Assembly& assembly = replay_->assembly();
        const TransformConfig& config = assembly.config();
        for (std::size_t f = 0; f < shown(); ++f) put(fields_[f], assembly.axes(f), targets[f]);
        std::vector<std::int64_t> axes;
        if (config.length > 0) axes.push_back(assembly.steps());
        const auto further = [&](bool there, const FieldBorder& field, const auto& own, auto*& target) {
            if (!there) return;
            char* data;
            put(field, own, data);
            target = reinterpret_cast<std::remove_reference_t<decltype(target)>>(data);
        };
        const std::vector<std::int64_t> none;
        further(config.n_step > 0 && !assembly.inner(), discount_, axes, extra.discount);
        further(config.n_step > 0, steps_, axes, extra.n_steps);
        further(config.length > 0, mask_, axes, extra.mask);
        further(shown() == 0, slot_, none, extra.slots);  // the rows are elsewhere
        further(config.strategy != Strategy::none, relabelled_, none, extra.relabelled);
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
        for (std::size_t i = 0; i < given; ++i) by_name[PyTuple_GetItem(names, i)] = nb::handle(values[i]);
        nb::list known;
        for (const FieldBorder& field : fields_) known.append(field.key());
        call_arrays("refuse", call, by_name, nb::tuple(known));
        fail("FieldError", "`", call, "` must be given every field once");
    }

    nb::object store(Input* inputs, nb::handle where, const Leading& leading) {
        std::array<const char*, 12> few;
        std::vector<const char*> many(fields_.size() > few.size() ? fields_.size() : 0);
        const char** sources = many.empty() ? few.data() : many.data();
        const std::int64_t values = leading.values();
        for (std::size_t c = 0; c < fields_.size(); ++c) {
            copy_own(inputs[c], values * fields_[c].column().bytes);
            sources[c] = inputs[c].data;
            if (values > 1) prefetch(sources[c], values * fields_[c].column().bytes);
        }
        Input mask;
        if (!where.is_none()) {
            where_.read(where, leading, mask);
            copy_own(mask, values);
        }
        const auto* kept = reinterpret_cast<const bool*>(mask.data);
        if (leading.none()) {
            std::int64_t id;
            replay_add(sources, 1, kept, &id);
            return nb::int_(id);
        }
        std::int64_t* ids;
        nb::object made = new_array(id_, leading.dims(), ids);
        replay_add(sources, leading.steps < 0 ? 1 : leading.steps, kept, ids);
        return made;
    }

    // A new array of such values.
    template <typename Value>
    static nb::object new_array(const FieldBorder& field, const std::vector<std::int64_t>& dims,
                                Value*& values) {
        char* data;
        nb::object made = field.target(dims, nb::none(), data);
        values = reinterpret_cast<Value*>(data);
        return made;
    }

    // Repeats a call until no other thread saves the rows.
    template <typename Call>
    void when_thawed(const Call& call) {
        const auto done = [&] {
            const WithoutGil no_gil;
            return call();
        };
        while (!done()) await_thaw();
    }

    // A view of the rows themselves (`columns`) is copied before they are written to.
    void copy_own(Input& input, std::int64_t bytes) const {
        if (replay_->rows().holds(input.data, bytes)) input.copy();
    }

    void replay_add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids) {
        when_thawed([&] { return replay_->add(sources, steps, where, ids); });
    }

    NB_NOINLINE void await_these(std::int64_t asked) {
        wait_heard([this, asked] { return replay_->lock().wait_for_draws(asked); });
    }

    std::vector<FieldBorder> fields_;
    // How far apart replicas' numbers lie: these are those of all replicas together, or of each.
    std::int64_t stride(const std::vector<double>& scheduled) const {
        return scheduled.size() > numbers_ ? static_cast<std::int64_t>(numbers_) : 0;
    }

    std::int64_t replicas_, num_envs_;
    std::size_t numbers_;  // of a sampler that change over a run
    FieldBorder discount_ = float32_field("discount"), steps_ = int64_field("n_steps");
    FieldBorder mask_ = bool_field("mask"), relabelled_ = bool_field("relabelled");
    FieldBorder weight_ = float32_field("weight"), probability_ = float64_field("probability");
    FieldBorder id_ = int64_field("id"), slot_ = int64_field("slot"), where_ = bool_field("where");
    std::unique_ptr<Replay> replay_;
    Successor successor_;
};

}  // namespace replaylab
