// What Python sees of the games.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>

#include "games/cart_pole.hpp"
#include "games/minatar.hpp"
#include "support/error.hpp"

namespace nb = nanobind;

namespace replaylab {

namespace {

using minatar::Action;
using minatar::kActions;
using minatar::kSide;
using minatar::Rules;

template <typename Value, int Axes>
using Array = nb::ndarray<Value, nb::numpy, nb::ndim<Axes>, nb::c_contig, nb::device::cpu>;
template <typename Value>
using Out = nb::ndarray<Value, nb::numpy>;
using Copies = Array<std::uint64_t, 2>;  // (E, words)

template <typename Value>
Out<Value> new_array(std::initializer_list<std::size_t> shape) {
    std::size_t size = 1;
    for (std::size_t n : shape) size *= n;
    auto values = std::make_unique<Value[]>(size);  // zeros
    Value* data = values.get();
    nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<Value*>(p); });
    return Out<Value>(data, shape, owner);
}

Rules rules_named(const std::string& name) {
    using namespace minatar;
    for (const auto& rules : {asterix(), breakout(), freeway(), seaquest(), space_invaders()})
        if (rules.name == name) return rules;
    fail("ConfigError", "`game` must be asterix, breakout, freeway, seaquest or space_invaders, but got '",
         name, "'");
}

struct BoundGame {
    Rules rules;

    void check_shape(const Copies& copies) const {
        if (static_cast<std::int64_t>(copies.shape(1)) != rules.words)
            fail("ShapeError", "a copy of ", rules.name, " has ", rules.words, " words, but got ",
                 copies.shape(1));
    }

    Out<std::uint64_t> start(const Array<const std::uint64_t, 1>& stream) const {
        Random::State state;
        if (stream.shape(0) != state.size())
            fail("ShapeError", "a stream has 4 words, but got ", stream.shape(0));
        std::copy(stream.data(), stream.data() + state.size(), state.begin());
        auto copy = new_array<std::uint64_t>({static_cast<std::size_t>(rules.words)});
        rules.start(copy.data(), state);
        return copy;
    }

    std::tuple<Out<float>, Out<bool>> step(const Copies& copies, const Array<const std::int64_t, 1>& action,
                                           const Array<const bool, 1>& skipped, double sticky_action_prob,
                                           bool ramping) const {
        check_shape(copies);
        const std::size_t num_envs = copies.shape(0);
        if (action.shape(0) != num_envs || skipped.shape(0) != num_envs)
            fail("ShapeError", "there must be an action, and whether it is skipped, for each of ", num_envs,
                 " copies");
        std::tuple<Out<float>, Out<bool>> seen{new_array<float>({num_envs}), new_array<bool>({num_envs})};
        auto& [reward, terminated] = seen;
        for (std::size_t i = 0; i < num_envs; ++i) {
            const std::int64_t chosen = action.data()[i];
            if (chosen < 0 || chosen >= kActions)
                fail("ConfigError", "an action must be from 0 to 5, but got ", chosen);
        }
        for (std::size_t i = 0; i < num_envs; ++i) {
            if (skipped.data()[i]) continue;
            const auto outcome =
                rules.step(copies.data() + static_cast<std::int64_t>(i) * rules.words,
                           static_cast<Action>(action.data()[i]), sticky_action_prob, ramping);
            reward.data()[i] = static_cast<float>(outcome.reward);
            terminated.data()[i] = outcome.terminated;
        }
        return seen;
    }

    Out<bool> observe(const Copies& copies) const {
        check_shape(copies);
        const std::size_t num_envs = copies.shape(0), channels = rules.channels.size();
        const std::size_t side = kSide, cells = channels * side * side;
        auto seen = new_array<bool>({num_envs, channels, side, side});
        for (std::size_t i = 0; i < num_envs; ++i)
            rules.show(copies.data() + static_cast<std::int64_t>(i) * rules.words,
                       minatar::Screen(seen.data() + i * cells));
        return seen;
    }

    // The first copy that the game cannot be in, or −1.
    std::int64_t find_unsound(const Copies& copies) const {
        check_shape(copies);
        for (std::size_t i = 0; i < copies.shape(0); ++i)
            if (!rules.is_sound(copies.data() + static_cast<std::int64_t>(i) * rules.words))
                return static_cast<std::int64_t>(i);
        return -1;
    }
};

Out<bool> step_cart_poles(const Array<double, 2>& variables, const Array<const std::int64_t, 1>& action,
                          const Array<const double, 1>& cos, const Array<const double, 1>& sin,
                          double position_limit, double angle_limit) {
    const std::size_t num_envs = variables.shape(1);
    if (variables.shape(0) != 4 || action.shape(0) != num_envs || cos.shape(0) != num_envs ||
        sin.shape(0) != num_envs)
        fail("ShapeError", "there must be 4 variables, an action, a cosine and a sine for each of ", num_envs,
             " copies");
    auto terminated = new_array<bool>({num_envs});
    double *position = variables.data(), *velocity = position + num_envs, *angle = velocity + num_envs,
           *spin = angle + num_envs;
    for (std::size_t i = 0; i < num_envs; ++i) {
        CartPole copy{position[i], velocity[i], angle[i], spin[i]};
        copy.step(action.data()[i] == 1, cos.data()[i], sin.data()[i]);
        terminated.data()[i] = copy.is_outside(position_limit, angle_limit);
    }
    return terminated;
}

}  // namespace

void bind_games(nb::module_& module) {
    module.def(
        "step_cart_poles", &step_cart_poles, nb::arg("variables").noconvert(), nb::arg("action"),
        nb::arg("cos"), nb::arg("sin"), nb::arg("position_limit"), nb::arg("angle_limit"),
        "Move CartPoles (4, E) one time step on in place; return which have left the limits, bool (E,).");
    nb::class_<BoundGame>(module, "MinAtar", "The rules of one MinAtar game; see replaylab.envs.minatar.")
        .def(
            "__init__",
            [](BoundGame* self, const std::string& game) { new (self) BoundGame{rules_named(game)}; },
            nb::arg("game"))
        .def("__getstate__", [](const BoundGame& self) { return std::string(self.rules.name); })
        .def("__setstate__",
             [](BoundGame* self, const std::string& game) { new (self) BoundGame{rules_named(game)}; })
        .def_prop_ro("channels",
                     [](const BoundGame& self) {
                         return std::vector<std::string>(self.rules.channels.begin(),
                                                         self.rules.channels.end());
                     })
        .def_prop_ro("minimal_actions", [](const BoundGame& self) { return self.rules.minimal_actions; })
        .def_prop_ro(
            "words", [](const BoundGame& self) { return self.rules.words; },
            "W, uint64 numbers that hold a copy.")
        .def_prop_ro_static(
            "last_action", [](nb::handle) { return minatar::kLastAction; },
            "Which of a copy's words is its last action.")
        .def("start", &BoundGame::start, nb::arg("stream"), "A new copy (W,) that draws from a stream (4,).")
        .def("step", &BoundGame::step, nb::arg("copies").noconvert(), nb::arg("action"), nb::arg("skipped"),
             nb::arg("sticky_action_prob"), nb::arg("ramping"),
             "Move copies (E, W) on in place, except for those skipped; return rewards and terminated, each "
             "(E,).")
        .def("observe", &BoundGame::observe, nb::arg("copies").noconvert(),
             "What is seen of copies, bool (E, channels, y, x).")
        .def("find_unsound", &BoundGame::find_unsound, nb::arg("copies").noconvert(),
             "The first copy that the game cannot be in, or −1.");
}

}  // namespace replaylab
