#include "samplers/sampler.hpp"

#include <algorithm>

#include "indexes/block_index.hpp"
#include "indexes/rank_index.hpp"
#include "indexes/sum_tree.hpp"
#include "support/error.hpp"

namespace replaylab {

bool SamplerConfig::ranks() const {
    return kind == "rank" || kind == "greedy" ||
           std::any_of(parts.begin(), parts.end(), [](const SamplerConfig& part) { return part.ranks(); });
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

void Sampler::finish(const Ring&, const std::int64_t*, std::int64_t) {}

void Sampler::stored(const Ring&, Random&, const std::int64_t*, std::int64_t) {}

void Sampler::update(const Ring&, const std::int64_t*, const double*, std::int64_t, bool) {}

void Sampler::visit(StateVisitor&) {}

void Sampler::restored(const Ring&) {}

std::unique_ptr<Sampler> Sampler::make(const SamplerConfig& config, std::int64_t capacity) {
    if (auto sampler = make_online_sampler(config)) return sampler;
    if (auto sampler = make_uniform_sampler(config)) return sampler;
    if (auto sampler = make_recency_sampler(config)) return sampler;
    if (auto sampler = make_correlated_sampler(config)) return sampler;
    if (auto sampler = make_reverse_sweep(config)) return sampler;
    if (auto sampler = make_shuffled_epochs(config, capacity)) return sampler;
    if (auto sampler = make_mixture(config, capacity)) return sampler;
    if (auto sampler = make_prioritized_sampler(config, capacity)) return sampler;
    if (auto sampler = make_placebo(config, capacity)) return sampler;
    if (auto sampler = make_rank_sampler(config, capacity)) return sampler;
    fail("ConfigError", "the core has no sampler of kind `", config.kind, "`");
}

std::int64_t sampler_nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks) {
    const std::int64_t blocks = in_blocks ? BlockIndex::nbytes(capacity) : 0;
    if (config.kind == "prioritized" || config.kind == "dispersed") return SumTree::nbytes(capacity) + blocks;
    if (config.kind == "permuted") return SumTree::nbytes(capacity) + 16 * capacity + blocks;
    if (config.ranks() && config.parts.empty())
        return RankIndex::nbytes(capacity) + (in_blocks ? 20 : 12) * capacity;
    if (config.kind == "distinct") return capacity / 8 + blocks;
    if (config.kind == "epochs") return 16 * capacity;
    std::int64_t bytes = 0;
    for (const SamplerConfig& part : config.parts) bytes += sampler_nbytes(part, capacity, in_blocks);
    return bytes;
}

void draw_uniform(const Ring& ring, Random& random, std::int64_t n, std::int64_t* slots) {
    const auto size = static_cast<std::uint64_t>(ring.size());
    for (std::int64_t k = 0; k < n; ++k) slots[k] = static_cast<std::int64_t>(random.below(size));
}

void fill_alike(const Draw& out, std::int64_t n, double probability) {
    std::fill(out.probability, out.probability + n, probability);
    std::fill(out.weight, out.weight + n, 1.0f);
}

}  // namespace replaylab
