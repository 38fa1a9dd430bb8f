// What must be kept to continue exactly: every part of a replay names its arrays and numbers once, and the
// same walk over them saves or restores.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "support/error.hpp"

namespace replaylab {

class StateVisitor {
  public:
    virtual ~StateVisitor() = default;

    template <typename Value>
    void visit(const std::string& name, std::vector<Value>& values) {
        array(prefix_ + name, &values);
    }
    void visit(const std::string& name, std::int64_t& value) {
        std::vector<std::int64_t> one{value};
        visit(name, one);
        value = one.at(0);
    }

    // Names inside get this in front.
    void within(const std::string& prefix) { prefix_ = prefix; }
    const std::string& prefix() const { return prefix_; }

    // What is restored may be anything: throws unless a number of it is one that could have been saved.
    void must(bool right, const char* name) const {
        if (!right)
            fail("SnapshotError", "the snapshot's array `", prefix_, name,
                 "` holds what no buffer of this kind does");
    }
    static constexpr std::int64_t kMost = std::int64_t{1} << 62;  // that anything is ever counted to

    void count(const char* name, std::int64_t& value) {
        visit(name, value);
        must(value >= 0 && value <= kMost, name);
    }

    virtual bool restoring() const = 0;

    // Whether there is an array of this name to restore: what is newer than the first snapshots may lack.
    bool has(const std::string& name) const { return holds(prefix_ + name); }

  protected:
    virtual bool holds(const std::string& name) const = 0;
    using Array = std::variant<std::vector<std::int64_t>*, std::vector<std::uint32_t>*, std::vector<float>*>;
    virtual void array(const std::string& name, Array values) = 0;

  private:
    std::string prefix_;
};

}  // namespace replaylab
