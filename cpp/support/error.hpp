// An error that reaches Python as the class of the same name in replaylab.errors.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace replaylab {

class Error : public std::runtime_error {
  public:
    Error(const char* kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    const char* kind() const noexcept { return kind_; }

  private:
    const char* kind_;
};

// fail("ShapeError", "field `", name, "` ...") concatenates its parts and throws.
template <typename... Parts>
[[noreturn, gnu::cold]] void fail(const char* kind, const Parts&... parts) {
    std::ostringstream message;
    message.precision(17);
    (message << ... << parts);
    throw Error(kind, message.str());
}

}  // namespace replaylab
