// What Python sees of the tabular updates.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/gil.hpp"
#include "learning/tabular.hpp"
#include "support/error.hpp"

namespace replaylab {

namespace nb = nanobind;

namespace {

template <typename Value, int dims>
using Array = nb::ndarray<Value, nb::numpy, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using Reals = Array<const double, 2>;
using Integers = Array<const std::int64_t, 2>;

void update_tables(const Array<double, 3>& q, const Integers& obs, const Integers& action,
                   const Reals& reward, const Reals& discount, const Integers& next_obs,
                   const Reals& step_size, const Array<const double, 1>& epsilon,
                   const std::optional<Integers>& next_action,
                   const std::optional<Array<std::uint64_t, 2>>& streams, const Array<double, 2>& td_error,
                   const Array<double, 2>& q_before) {
    const std::int64_t replicas = static_cast<std::int64_t>(q.shape(0));
    const std::int64_t rows = static_cast<std::int64_t>(obs.shape(1));
    const auto fits = [&](const auto& array, std::int64_t width) {
        return static_cast<std::int64_t>(array.shape(0)) == replicas &&
               static_cast<std::int64_t>(array.shape(1)) == width;
    };
    bool all_fit = fits(obs, rows) && fits(action, rows) && fits(reward, rows) && fits(discount, rows) &&
                   fits(next_obs, rows) && fits(step_size, rows) && fits(td_error, rows) &&
                   fits(q_before, rows);
    all_fit &= static_cast<std::int64_t>(epsilon.shape(0)) == replicas;
    all_fit &= (!next_action || fits(*next_action, rows)) && (!streams || fits(*streams, 4));
    if (!all_fit)
        fail("ShapeError", "the rows must be (R, B) for ", replicas, " replicas of ", rows, " rows");
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
        streams ? Target::sampled : Target::expected,
    };
    const WithoutGil no_gil;
    update.check();
    update.run();
}

}  // namespace

void bind_tabular(nb::module_& module) {
    module.def("update_tables", &update_tables, nb::arg("q"), nb::arg("obs"), nb::arg("action"),
               nb::arg("reward"), nb::arg("discount"), nb::arg("next_obs"), nb::arg("step_size"),
               nb::arg("epsilon"), nb::arg("next_action").none(), nb::arg("streams").none(),
               nb::arg("td_error"), nb::arg("q_before"),
               "Update R tables of action values, row after row; see "
               "replaylab.learners.tabular.temporal_difference.");
}

}  // namespace replaylab
