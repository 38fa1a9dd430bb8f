// What the core draws, without Python: for a processor that runs none of it here, such as an emulated one.
// Reads cases as golden.py writes them, makes their draws, and writes them again; what differs, differs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "replay/replay.hpp"
#include "support/error.hpp"

namespace {

using namespace replaylab;

constexpr std::int64_t kCapacity = 700, kReplicas = 2, kEnvs = 2, kSteps = 500, kBatch = 64, kTurns = 10;

struct Case {
    SamplerConfig sampler;
    TransformConfig transforms;
};

// 64 bits of Fowler, Noll and Vo's hash.
struct Checksum {
    std::uint64_t value = 0xcbf29ce484222325u;
    void take(const void* bytes, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
            value = (value ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
    }
    template <typename Value>
    void take(const std::vector<Value>& values) {
        take(values.data(), values.size() * sizeof(Value));
    }
};

std::vector<Column> fields() {
    const auto number = [](const char* name, std::int64_t bytes, bool floating) {
        Column column;
        column.name = name;
        column.itemsize = column.bytes = bytes;
        column.floating = floating;
        return column;
    };
    std::vector<Column> all{number("obs.x", 4, true),
                            number("obs.desired_goal", 4, true),
                            number("action", 8, false),
                            number("reward", 4, true),
                            number("next_obs.achieved_goal", 4, true),
                            number("next_obs.desired_goal", 4, true),
                            number("terminated", 1, false),
                            number("truncated", 1, false)};
    all[0].shape = {3};
    all[0].bytes = 12;
    return all;
}

// So many time steps from number `first` on, as [R][T][E]. All numbers are exact.
void add(Replay& replay, std::int64_t first, std::int64_t steps) {
    std::vector<float> obs, desired, reward, achieved;
    std::vector<std::int64_t> action;
    std::vector<char> terminated, truncated;
    for (std::int64_t r = 0; r < kReplicas; ++r)
        for (std::int64_t t = first; t < first + steps; ++t)
            for (std::int64_t e = 0; e < kEnvs; ++e) {
                const std::int64_t n = t * kEnvs + e;
                for (std::int64_t i = 0; i < 3; ++i)
                    obs.push_back(static_cast<float>(n % 97) / 4 + static_cast<float>(r + i));
                desired.push_back(static_cast<float>(e));
                action.push_back(n % 5);
                reward.push_back(static_cast<float>((7 * n + 3 * r) % 11 - 5) / 8);
                achieved.push_back(static_cast<float>(n * 13 % 29) / 2);
                terminated.push_back((t + e) % 23 == 22);
                truncated.push_back((t + 2 * e) % 31 == 30);
            }
    const void* sources[] = {obs.data(),      desired.data(), action.data(),     reward.data(),
                             achieved.data(), desired.data(), terminated.data(), truncated.data()};
    std::vector<std::int64_t> ids(static_cast<std::size_t>(kReplicas * steps * kEnvs));
    replay.add(reinterpret_cast<const char* const*>(sources), steps, nullptr, ids.data());
}

// A batch in every replica, all of it in the checksum; returns the ids.
std::vector<std::int64_t> sample(Replay& replay, const std::vector<double>& scheduled, Checksum& sum) {
    const Assembly& assembly = replay.assembly();
    const TransformConfig& config = assembly.config();
    const auto rows = static_cast<std::size_t>(kReplicas * replay.batch_rows(kBatch));
    const std::size_t steps = rows * static_cast<std::size_t>(config.length > 0 ? assembly.steps() : 1);
    std::vector<std::vector<char>> columns;
    std::vector<char*> targets;
    const std::vector<Column> declared = fields();
    for (std::size_t f = 0; f < declared.size(); ++f) {
        std::size_t bytes = rows * static_cast<std::size_t>(declared[f].bytes);
        for (const std::int64_t axis : assembly.axes(f)) bytes *= static_cast<std::size_t>(axis);
        columns.emplace_back(bytes);
    }
    for (auto& column : columns) targets.push_back(column.data());
    std::vector<float> discount(config.n_step > 0 && !assembly.inner() ? steps : 0), weights(rows);
    std::vector<std::int64_t> n_steps(config.n_step > 0 ? steps : 0), ids(rows);
    std::vector<char> mask(config.length > 0 ? steps : 0);
    std::vector<char> relabelled(config.strategy != Strategy::none ? rows : 0);
    std::vector<double> probabilities(rows);
    ExtraTargets extra;
    if (!discount.empty()) extra.discount = discount.data();
    if (!n_steps.empty()) extra.n_steps = n_steps.data();
    if (!mask.empty()) extra.mask = reinterpret_cast<bool*>(mask.data());
    if (!relabelled.empty()) extra.relabelled = reinterpret_cast<bool*>(relabelled.data());
    replay.sample(kBatch, scheduled.data(), 0, true, targets.data(), ids.data(), probabilities.data(),
                  weights.data(), extra);
    for (const auto& column : columns) sum.take(column);
    sum.take(discount);
    sum.take(n_steps);
    sum.take(mask);
    sum.take(relabelled);
    sum.take(weights);
    sum.take(probabilities);
    sum.take(ids);
    return ids;
}

std::vector<double> feedback(const std::vector<std::int64_t>& ids) {
    std::vector<double> td_errors;
    for (const std::int64_t id : ids) td_errors.push_back(static_cast<double>(id * 37 % 101) / 64 - 0.75);
    return td_errors;
}

// The newest steps' chances; left out where a sampler has no closed form.
void distribution(Replay& replay, const std::vector<double>& scheduled, Checksum& sum) {
    std::vector<std::int64_t> sizes(kReplicas), next(kReplicas), ids;
    replay.counts(sizes.data(), next.data());
    for (const std::int64_t after : next)
        for (std::int64_t id = after - kBatch; id < after; ++id) ids.push_back(id);
    std::vector<double> chances(ids.size());
    try {
        replay.probabilities(ids.data(), kBatch, kBatch, scheduled.data(), 0, chances.data());
        sum.take(chances);
    } catch (const Error&) {
    }
}

std::string draws(const Case& asked) {
    ReplayConfig config;
    config.fields = fields();
    config.capacity = kCapacity;
    config.replicas = kReplicas;
    config.num_envs = kEnvs;
    config.sampler = asked.sampler;
    config.transforms = asked.transforms;
    config.transforms.partners.assign(config.fields.size(), -1);
    for (std::uint64_t r = 0; r < kReplicas; ++r)
        config.streams.push_back({r + 1, 0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu});
    const std::vector<double> scheduled(std::max<std::size_t>(1, asked.sampler.parts.size()), 0.9);
    Replay replay(std::move(config));
    add(replay, 0, kSteps);
    Checksum sum;
    std::ostringstream line;
    line << "draws";
    for (std::int64_t turn = 0; turn < kTurns; ++turn) {
        const std::vector<std::int64_t> ids = sample(replay, scheduled, sum);
        for (std::size_t k = 0; turn == 0 && k < std::min<std::size_t>(8, ids.size()); ++k)
            line << ' ' << ids[k];
        const auto each = static_cast<std::int64_t>(ids.size()) / kReplicas;
        replay.update(ids.data(), feedback(ids).data(), each, true);
        add(replay, kSteps + 3 * turn, 3);
    }
    distribution(replay, scheduled, sum);
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(sum.value));
    line << ' ' << hex;
    return line.str();
}

SamplerConfig sampler_of(std::istringstream& words) {
    SamplerConfig config;
    words >> config.kind;
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        config.options[word.substr(0, equals)] = std::strtod(word.c_str() + equals + 1, nullptr);
    }
    return config;
}

TransformConfig transforms_of(std::istringstream& words) {
    std::map<std::string, double> given;
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        given[word.substr(0, equals)] = std::strtod(word.c_str() + equals + 1, nullptr);
    }
    const auto whole = [&](const char* name) { return static_cast<std::int64_t>(given[name]); };
    TransformConfig config;
    config.n_step = whole("n_step");
    if (config.n_step > 0) config.last = {4, 5, 6, 7};  // next observations, terminated, truncated
    if (given.count("gamma")) config.gamma = given["gamma"];
    config.length = whole("length");
    config.stride = whole("stride");
    config.burn_in = whole("burn_in");
    if (given.count("strategy")) {
        config.strategy = static_cast<Strategy>(whole("strategy"));
        config.share = given["share"];
        config.achieved = {4, 4};
        config.desired = {1, 5};
    }
    return config;
}

}  // namespace

int main() {
    Case asked;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "sampler") asked = {sampler_of(words), {}};
        if (what == "part") asked.sampler.parts.push_back(sampler_of(words));
        if (what == "transform") asked.transforms = transforms_of(words);
        std::cout << (what == "draws" ? draws(asked) : line) << '\n';
    }
}
