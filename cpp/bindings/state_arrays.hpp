// A replay's state as arrays by name, and back.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/array_args.hpp"
#include "support/error.hpp"
#include "support/state.hpp"

namespace replaylab {

// Copies arrays out; knows nothing of Python until they are asked for.
class Saver : public StateVisitor {
  public:
    bool restoring() const override { return false; }

    // The arrays by name; once.
    nb::dict arrays() {
        nb::dict made;
        for (auto& [name, values] : copies_)
            std::visit([&, key = name.c_str()](auto& own) { made[key] = array_of(std::move(own)); }, values);
        return made;
    }

  protected:
    bool holds(const std::string&) const override { return true; }
    void array(const std::string& name, Array values) override {
        std::visit([&](const auto* own) { copies_.emplace_back(name, *own); }, values);
    }

  private:
    using Values = std::variant<std::vector<std::int64_t>, std::vector<std::uint32_t>, std::vector<float>>;
    std::vector<std::pair<std::string, Values>> copies_;
};

// Takes arrays from a dict; each must be as long as the one it replaces, unless that one is of any length.
class Restorer : public StateVisitor {
  public:
    explicit Restorer(nb::dict arrays) : arrays_(std::move(arrays)) {}
    bool restoring() const override { return true; }

  protected:
    bool holds(const std::string& name) const override { return arrays_.contains(name.c_str()); }
    void array(const std::string& name, Array values) override {
        if (!arrays_.contains(name.c_str()))
            fail("SnapshotError", "the snapshot lacks the array `", name, "`");
        std::visit(
            [&](auto* own) {
                auto saved = vector_of<typename std::remove_pointer_t<decltype(own)>::value_type>(
                    arrays_[name.c_str()]);
                if (!own->empty() && saved.size() != own->size())
                    fail("SnapshotError", "the snapshot's array `", name, "` must hold ", own->size(),
                         " values, but holds ", saved.size());
                *own = std::move(saved);
            },
            values);
    }

  private:
    nb::dict arrays_;
};

}  // namespace replaylab
