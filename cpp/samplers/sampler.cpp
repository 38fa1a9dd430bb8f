#include "samplers/sampler.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace replaylab {

double SamplerConfig::option(const std::string& name) const {
    const auto found = options.find(name);
    if (found == options.end())
        fail("ConfigError", "a sampler of kind `", kind, "` needs the option `", name,
             "`, which it was made without");
    return found->second;
}

void Sampler::check(const Ring& ring, std::int64_t) const {
    if (ring.size() >= ring.min_size()) return;
    if (ring.size() == 0 && ring.min_size() == 1)
        fail("EmptyBufferError", "the buffer is empty; add at least one step before sampling");
    fail("EmptyBufferError", "the buffer was made with min_size=", ring.min_size(), ", but only ",
         ring.size(), " steps are stored; add more steps before sampling");
}

void Sampler::need(const char* sampler, const Ring& ring, std::int64_t batch, std::int64_t rows) {
    if (batch <= rows) return;
    const char* what = ring.in_blocks() ? "sequences" : "steps";
    fail("EmptyBufferError", sampler, " gives `batch_size` different ", what, ", but batch_size=", batch,
         " and only ", rows, " ", what, " are stored (capacity=", ring.capacity(),
         "); ask for fewer, or add more steps first");
}

void Sampler::refuse_zeros(const Ring& ring) {
    fail("EmptyBufferError", "every one of the ", ring.size(),
         " stored steps has priority 0, so none can be drawn; give at least one a positive priority with "
         "update_priorities");
}

void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots) {
    const auto size = static_cast<std::uint64_t>(ring.size());
    for (std::int64_t k = 0; k < n; ++k) slots[k] = static_cast<std::int64_t>(random.below(size));
    ring.number_slots(n, slots);
}

void fill_alike(const Draw& out, std::int64_t n, double probability) {
    std::fill(out.probability, out.probability + n, probability);
    std::fill(out.weight, out.weight + n, 1.0f);
}

}  // namespace replaylab
