// The table of sampler kinds: what each is called, how it is made, what it takes and what it can do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "samplers/sampler.hpp"

namespace replaylab {

// One line of the table. All that is asked of a kind without making one is here, so that nothing else
// compares names.
struct SamplerKind {
    const char* name;
    std::unique_ptr<Sampler> (*make)(const SamplerConfig& config, std::int64_t capacity);
    // Bytes of one replica's state, before any is taken; in blocks where sequences are drawn.
    std::int64_t (*nbytes)(const SamplerConfig& config, std::int64_t capacity, bool in_blocks);

    bool feedback = false;  // update() changes what is drawn
    const char* priorities =
        "";  // the array of its state that holds every stored step's priority, if it keeps them
    bool episodes = false;          // it asks the ring for episodes
    bool slots_in_32_bits = false;  // it keeps slots as 32-bit numbers, which bounds the capacity
};

using SamplerFamily = std::vector<SamplerKind>;

// The lines of all families, each of which is in the file that defines its samplers.
const SamplerFamily& sampler_kinds();

// The line of a kind; throws, naming those there are, where there is none.
const SamplerKind& sampler_kind(const std::string& name);

std::unique_ptr<Sampler> make_sampler(const SamplerConfig& config, std::int64_t capacity);
std::int64_t sampler_nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks);

// Whether this sampler, or a part of it, can do something: has(config, &SamplerKind::feedback).
bool has(const SamplerConfig& config, bool SamplerKind::* capability);

// The array of the sampler's state that holds priorities, of a mixture the first part's that keeps some; ""
// for none.
std::string priorities_of(const SamplerConfig& config);

// The field that says the time of a step, of a mixture the first part's that has one; "" for none.
std::string clock_of(const SamplerConfig& config);

// For a line of the table: makes a sampler of what its constructor takes.
template <typename Kind>
std::unique_ptr<Sampler> make(const SamplerConfig& config, std::int64_t capacity) {
    if constexpr (std::is_constructible_v<Kind, const SamplerConfig&, std::int64_t>)
        return std::make_unique<Kind>(config, capacity);
    else if constexpr (std::is_constructible_v<Kind, const SamplerConfig&>)
        return std::make_unique<Kind>(config);
    else
        return std::make_unique<Kind>();
}

// And of those that keep nothing for each slot.
inline std::int64_t no_nbytes(const SamplerConfig&, std::int64_t, bool) { return 0; }

}  // namespace replaylab
