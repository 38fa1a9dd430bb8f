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
    void integers(const std::string& name, std::vector<std::int64_t>& values) override {
        copies_.emplace_back(name, values);
    }
    void words(const std::string& name, std::vector<std::uint32_t>& values) override {
        copies_.emplace_back(name, values);
    }
    void floats(const std::string& name, std::vector<float>& values) override {
        copies_.emplace_back(name, values);
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

}  // namespace replaylab
