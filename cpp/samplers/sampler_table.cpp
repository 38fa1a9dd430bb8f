#include "samplers/sampler_table.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace replaylab {

using Family = SamplerFamily();
Family online_samplers, uniform_samplers, recency_samplers, correlated_samplers, shuffled_epochs, mixtures,
    prioritized_samplers, aged_samplers, placebos, rank_based_samplers, binned_samplers;

const SamplerFamily& sampler_kinds() {
    static const SamplerFamily table = [] {
        SamplerFamily all;
        for (Family* family : {online_samplers, uniform_samplers, recency_samplers, correlated_samplers,
                               shuffled_epochs, mixtures, prioritized_samplers, aged_samplers, placebos,
                               rank_based_samplers, binned_samplers}) {
            const SamplerFamily kinds = family();
            all.insert(all.end(), kinds.begin(), kinds.end());
        }
        return all;
    }();
    return table;
}

const SamplerKind& sampler_kind(const std::string& name) {
    std::string known;
    for (const SamplerKind& kind : sampler_kinds()) {
        if (name == kind.name) return kind;
        known += (known.empty() ? "" : ", ") + std::string(kind.name);
    }
    fail("ConfigError", "`kind` of a sampler must be one that the core has (", known, "), but got `", name,
         "`");
}

std::unique_ptr<Sampler> make_sampler(const SamplerConfig& config, std::int64_t capacity) {
    return sampler_kind(config.kind).make(config, capacity);
}

std::int64_t sampler_nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks) {
    return sampler_kind(config.kind).nbytes(config, capacity, in_blocks);
}

bool has(const SamplerConfig& config, bool SamplerKind::* capability) {
    return sampler_kind(config.kind).*capability ||
           std::any_of(config.parts.begin(), config.parts.end(),
                       [&](const SamplerConfig& part) { return has(part, capability); });
}

std::string clock_of(const SamplerConfig& config) {
    std::string clock = config.clock;
    for (std::size_t j = 0; j < config.parts.size() && clock.empty(); ++j) clock = clock_of(config.parts[j]);
    return clock;
}

std::string priorities_of(const SamplerConfig& config) {
    const std::string own = sampler_kind(config.kind).priorities;
    for (std::size_t j = 0; j < config.parts.size() && own.empty(); ++j) {
        const std::string part = priorities_of(config.parts[j]);
        if (!part.empty()) return part_prefix(j) + part;
    }
    return own;
}

}  // namespace replaylab
