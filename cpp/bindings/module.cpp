// The compiled core's table of contents.
#include <nanobind/nanobind.h>

#include "bindings/array_args.hpp"
#include "support/error.hpp"

namespace replaylab {

void bind_replay(nanobind::module_& module);
void bind_learners(nanobind::module_& module);
void bind_games(nanobind::module_& module);

}  // namespace replaylab

NB_MODULE(_core, module) {
    module.doc() =
        "The compiled core of replaylab: rows, ids, sum tree, random streams, tables of action values.";
    // A buffer that lives to the end of the program, in a global or a cycle, is nobody's mistake.
    nanobind::set_leak_warnings(false);
    replaylab::import_numpy();
    nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const replaylab::Error& error) {
            replaylab::set_python_error(error);
        }
    });
    replaylab::bind_replay(module);
    replaylab::bind_learners(module);
    replaylab::bind_games(module);
}
