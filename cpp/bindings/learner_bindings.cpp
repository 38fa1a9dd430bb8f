// What Python sees of the learners: deep Q-learners, tables of action values, and ε-greedy actions.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <variant>

#include "bindings/gil.hpp"
#include "learning/epsilon_greedy.hpp"
#include "learning/q_learners.hpp"
#include "learning/tabular.hpp"
#include "support/error.hpp"

namespace nb = nanobind;

namespace replaylab {

namespace {

template <typename Value, int Axes>
using Array = nb::ndarray<Value, nb::numpy, nb::ndim<Axes>, nb::c_contig, nb::device::cpu>;
template <typename Value, int Axes>
using In = Array<const Value, Axes>;
using Out = nb::ndarray<nb::numpy, float>;

template <typename Value = float>
nb::ndarray<nb::numpy, Value> new_array(std::initializer_list<std::size_t> shape) {
    std::size_t size = 1;
    for (std::size_t n : shape) size *= n;
    auto values = std::make_unique<Value[]>(size);
    Value* data = values.get();
    nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<Value*>(p); });
    return nb::ndarray<nb::numpy, Value>(data, shape, owner);
}

template <typename Array>
void check(const char* name, const Array& array, std::initializer_list<std::int64_t> shape) {
    std::size_t axis = 0;
    for (std::int64_t n : shape)
        if (static_cast<std::int64_t>(array.shape(axis++)) != n)
            fail("ShapeError", "axis ", axis - 1, " of `", name, "` must be ", n, ", but is ",
                 array.shape(axis - 1));
}

QInputs inputs_of(const float* numbers) { return {numbers, nullptr}; }
QInputs inputs_of(const std::uint8_t* pixels) { return {nullptr, pixels}; }

// Filters are (count, side, stride), the lowest first.
Network network_of(const std::vector<std::int64_t>& shape,
                   const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>& convolutions,
                   const std::vector<std::int64_t>& hidden, std::int64_t actions, bool dueling) {
    if (shape.size() != 3) fail("ShapeError", "`shape` must be (channels, height, width)");
    std::vector<Filters> filters;
    Image image{shape[0], shape[1], shape[2]};
    for (const auto& [count, side, stride] : convolutions) {
        if (image.height < side || image.width < side)
            fail("ShapeError", "filters of ", side, " × ", side, " need more than ", image.height, " × ",
                 image.width);
        filters.push_back({count, side, stride});
        image = Convolution(image, filters.back()).to();
    }
    return Network({shape[0], shape[1], shape[2]}, filters, hidden, actions, dueling);
}

// (name, decay of the gradients' average, decay of their squares' average, epsilon)
using NamedOptimizer = std::tuple<std::string, double, double, double>;

Optimizer optimizer_of(const NamedOptimizer& named) {
    const auto& [name, mean_decay, square_decay, epsilon] = named;
    for (const auto& [known, rule] :
         {std::pair{"adam", StepRule::adam}, {"rmsprop", StepRule::rmsprop}, {"sgd", StepRule::momentum}})
        if (name == known) return {rule, mean_decay, square_decay, epsilon};
    fail("ConfigError", "an optimizer must be adam, rmsprop or sgd, but got ", name);
}

struct Bound {
    QLearners learners;

    std::int64_t inputs() const { return learners.network().inputs().size(); }

    template <typename Value>
    Out q_values(const In<Value, 3>& obs) {
        const auto rows = static_cast<std::int64_t>(obs.shape(1));
        check("obs", obs, {learners.replicas(), rows, inputs()});
        Out q =
            new_array({obs.shape(0), obs.shape(1), static_cast<std::size_t>(learners.network().actions())});
        const WithoutGil no_gil;
        learners.q_values(inputs_of(obs.data()), rows, q.data());
        return q;
    }

    template <typename Value>
    std::tuple<Out, Out, Out> update(const In<Value, 3>& obs, const In<std::int64_t, 2>& action,
                                     const In<float, 2>& reward, const In<Value, 3>& next_obs,
                                     const In<float, 2>& discount, const In<float, 2>& weight) {
        const std::int64_t replicas = learners.replicas(), rows = static_cast<std::int64_t>(action.shape(1));
        check("obs", obs, {replicas, rows, inputs()});
        check("action", action, {replicas, rows});
        check("reward", reward, {replicas, rows});
        check("next_obs", next_obs, {replicas, rows, inputs()});
        check("discount", discount, {replicas, rows});
        check("weight", weight, {replicas, rows});
        const auto shape = {action.shape(0), action.shape(1)};
        std::tuple<Out, Out, Out> seen{new_array(shape), new_array(shape), new_array(shape)};
        auto& [td_error, slope, q] = seen;
        const QBatch batch{rows,          inputs_of(obs.data()), inputs_of(next_obs.data()),
                           action.data(), reward.data(),         discount.data(),
                           weight.data()};
        const WithoutGil no_gil;
        learners.update(batch, {td_error.data(), slope.data(), q.data()});
        return seen;
    }
};

void update_tables(const Array<double, 3>& q, const In<std::int64_t, 2>& obs,
                   const In<std::int64_t, 2>& action, const In<double, 2>& reward,
                   const In<double, 2>& discount, const In<std::int64_t, 2>& next_obs,
                   const In<double, 2>& step_size, const In<double, 1>& epsilon,
                   const std::optional<In<std::int64_t, 2>>& next_action,
                   const std::optional<Array<std::uint64_t, 2>>& streams, const Array<double, 2>& td_error,
                   const Array<double, 2>& q_before) {
    const auto replicas = static_cast<std::int64_t>(q.shape(0)),
               rows = static_cast<std::int64_t>(obs.shape(1));
    check("obs", obs, {replicas, rows});
    check("action", action, {replicas, rows});
    check("reward", reward, {replicas, rows});
    check("discount", discount, {replicas, rows});
    check("next_obs", next_obs, {replicas, rows});
    check("step_size", step_size, {replicas, rows});
    check("epsilon", epsilon, {replicas});
    if (next_action) check("next_action", *next_action, {replicas, rows});
    if (streams) check("streams", *streams, {replicas, 4});
    check("td_error", td_error, {replicas, rows});
    check("q_before", q_before, {replicas, rows});
    const TabularUpdate update{
        replicas,
        rows,
        static_cast<std::int64_t>(q.shape(1)),
        static_cast<std::int64_t>(q.shape(2)),
        q.data(),
        obs.data(),
        action.data(),
        next_obs.data(),
        next_action ? next_action->data() : nullptr,
        reward.data(),
        discount.data(),
        step_size.data(),
        epsilon.data(),
        streams ? streams->data() : nullptr,
        td_error.data(),
        q_before.data(),
    };
    const WithoutGil no_gil;
    update.check();
    update.run();
}

template <typename Value>
nb::ndarray<nb::numpy, std::int64_t> epsilon_greedy_actions(
    const In<Value, 2>& q, const std::variant<In<double, 1>, double>& epsilon, const In<double, 2>& draws,
    std::int64_t choices) {
    const auto rows = static_cast<std::int64_t>(q.shape(0)), actions = static_cast<std::int64_t>(q.shape(1));
    const auto* each = std::get_if<0>(&epsilon);
    if (each) check("epsilon", *each, {rows});
    check("draws", draws, {2, rows});
    auto chosen = new_array<std::int64_t>({q.shape(0)});
    for (std::int64_t row = 0; row < rows; ++row)
        chosen.data()[row] =
            epsilon_greedy(q.data() + row * actions, actions, each ? each->data()[row] : std::get<1>(epsilon),
                           draws.data()[row], draws.data()[rows + row], choices);
    return chosen;
}

template <std::vector<float> QLearners::* Values>
Out view(nb::handle self) {
    QLearners& learners = nb::cast<Bound&>(self).learners;
    return Out((learners.*Values).data(),
               {static_cast<std::size_t>(learners.replicas()),
                static_cast<std::size_t>(learners.network().parameters())},
               self);
}

}  // namespace

void bind_learners(nb::module_& module) {
    module.def("update_tables", &update_tables, nb::arg("q"), nb::arg("obs"), nb::arg("action"),
               nb::arg("reward"), nb::arg("discount"), nb::arg("next_obs"), nb::arg("step_size"),
               nb::arg("epsilon"), nb::arg("next_action").none(), nb::arg("streams").none(),
               nb::arg("td_error"), nb::arg("q_before"),
               "Update R tables of action values, row after row; see "
               "replaylab.learners.tabular.temporal_difference.");
    const char* doc =
        "ε-greedy actions (N,) for values (N, A) and ε, a number or (N,); draws (2, N) in [0, 1) say whether "
        "to "
        "explore, and which of the first `choices` actions or of equally good ones to take.";
    module.def("epsilon_greedy", &epsilon_greedy_actions<double>, nb::arg("q"), nb::arg("epsilon"),
               nb::arg("draws"), nb::arg("choices"), doc);
    module.def("epsilon_greedy", &epsilon_greedy_actions<float>, nb::arg("q"), nb::arg("epsilon"),
               nb::arg("draws"), nb::arg("choices"), doc);
    module.def("usable_kernels", &usable_kernels, "The kernels this processor can run, best first.");
    module.def("use_kernels", &use_kernels, nb::arg("name"), "Use these kernels from now on; for tests.");
    nb::class_<Bound>(module, "QLearners", "R deep Q-learners; see replaylab.learners.")
        .def(
            "__init__",
            [](Bound* self, const std::vector<std::int64_t>& shape,
               const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>& convolutions,
               const std::vector<std::int64_t>& hidden, std::int64_t actions, std::int64_t replicas,
               bool dueling, bool is_double, bool huber, float max_grad_norm, float least, float most,
               const NamedOptimizer& optimizer, float tau, std::int64_t target_period) {
                new (self) Bound{QLearners(network_of(shape, convolutions, hidden, actions, dueling),
                                           {is_double, huber, max_grad_norm, least, most,
                                            optimizer_of(optimizer), tau, target_period},
                                           replicas)};
            },
            nb::kw_only(), nb::arg("shape"), nb::arg("convolutions"), nb::arg("hidden"), nb::arg("actions"),
            nb::arg("replicas"), nb::arg("dueling"), nb::arg("is_double"), nb::arg("huber"),
            nb::arg("max_grad_norm"), nb::arg("least"), nb::arg("most"), nb::arg("optimizer"), nb::arg("tau"),
            nb::arg("target_period"))
        .def("q_values", &Bound::q_values<float>, nb::arg("obs"), "Q(s, ·) (R, N, A) for inputs (R, N, I).")
        .def("q_values", &Bound::q_values<std::uint8_t>, nb::arg("obs"),
             "The same for pixels (R, N, I), seen as shares of 255.")
        .def("update", &Bound::update<float>, nb::arg("obs"), nb::arg("action"), nb::arg("reward"),
             nb::arg("next_obs"), nb::arg("discount"), nb::arg("weight"),
             "One update of every replica; returns δ, ℓ'(δ) and Q(s, a), each (R, B).")
        .def("update", &Bound::update<std::uint8_t>, nb::arg("obs"), nb::arg("action"), nb::arg("reward"),
             nb::arg("next_obs"), nb::arg("discount"), nb::arg("weight"), "The same from pixels.")
        .def_prop_ro("online", &view<&QLearners::online>, "Parameters (R, P).")
        .def_prop_ro("target", &view<&QLearners::target>, "The target networks' parameters (R, P).")
        .def_prop_ro("mean", &view<&QLearners::mean>, "The optimizer's average of the gradients (R, P).")
        .def_prop_ro("square", &view<&QLearners::square>, "The optimizer's average of their squares (R, P).")
        .def_prop_ro("gradients", &view<&QLearners::gradients>,
                     "Of the latest update, after clipping (R, P).")
        .def_prop_ro(
            "learning_rates",
            [](nb::handle self) {
                QLearners& learners = nb::cast<Bound&>(self).learners;
                return Out(learners.learning_rates.data(), {static_cast<std::size_t>(learners.replicas())},
                           self);
            },
            "Of the next update (R,), 0 until they are set.")
        .def_prop_rw(
            "updates", [](Bound& self) { return self.learners.updates; },
            [](Bound& self, std::int64_t updates) { self.learners.updates = updates; })
        .def_prop_ro(
            "layers",
            [](Bound& self) {
                std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> layers;
                for (const Layer& layer : self.learners.network().layers())
                    layers.emplace_back(layer.weight, layer.outputs, layer.inputs);
                return layers;
            },
            "Where each layer's weights (outputs, inputs) begin, its biases after them: (begin, outputs, "
            "inputs).");
}

}  // namespace replaylab
