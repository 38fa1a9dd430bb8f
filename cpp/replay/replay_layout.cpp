#include "replay/replay_layout.hpp"

#include <algorithm>

#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

bool among(const std::vector<std::int64_t>& numbers, std::size_t one) {
    return std::find(numbers.begin(), numbers.end(), static_cast<std::int64_t>(one)) != numbers.end();
}

}  // namespace

std::vector<std::int64_t> stored_fields(const ReplayConfig& config) {
    std::vector<std::int64_t> stored;
    for (std::size_t f = 0; f < config.fields.size() && !config.rows_elsewhere; ++f)
        if (!config.transforms.derived || !is_next_obs(config.fields[f].name))
            stored.push_back(static_cast<std::int64_t>(f));
    return stored;
}

std::vector<Column> stored_columns(const ReplayConfig& config) {
    std::vector<Column> columns;
    for (const std::int64_t f : stored_fields(config))
        columns.push_back(config.fields[static_cast<std::size_t>(f)]);
    return columns;
}

std::vector<Shown> shown_fields(const ReplayConfig& config, bool transformed) {
    const std::vector<std::int64_t> stored = stored_fields(config);
    const auto column_of = [&](std::int64_t field) {
        return std::find(stored.begin(), stored.end(), field) - stored.begin();
    };
    std::vector<Shown> shown;
    for (std::size_t f = 0; f < config.fields.size() && !config.rows_elsewhere; ++f) {
        const std::string& name = config.fields[f].name;
        const std::int64_t partner = config.transforms.partners[f];
        Shown one;
        one.of_next = config.transforms.derived && is_next_obs(name);
        one.column = column_of(one.of_next ? partner : static_cast<std::int64_t>(f));
        if (transformed) {
            one.of_last = among(config.transforms.last, f);
            one.state = among(config.transforms.states, f);
            one.after = partner >= 0;
            if (among(config.transforms.stacked, f))
                one.before = column_of(one.after ? partner : static_cast<std::int64_t>(f));
        }
        shown.push_back(one);
    }
    return shown;
}

bool keeps_episodes(const ReplayConfig& config) {
    return config.transforms.looks_around() || has(config.sampler, &SamplerKind::episodes);
}

std::int64_t environments_nbytes(const ReplayConfig& config) {
    const bool noted = config.num_envs > 1 && config.retention == Retention::fifo && !config.rows_elsewhere &&
                       !keeps_episodes(config);
    return noted ? 4 * config.capacity : 0;
}

std::int64_t Replay::row_nbytes(const ReplayConfig& config) {
    std::vector<Column> columns = stored_columns(config);
    return RowStore::lay_out(columns);
}

std::int64_t Replay::nbytes(const ReplayConfig& config) {
    return row_nbytes(config) * (config.capacity + 1) + (config.count_replays ? 4 * config.capacity : 0) +
           sampler_nbytes(config.sampler, config.capacity, config.transforms.length > 0) +
           Ring::nbytes(config.capacity, config.retention) + environments_nbytes(config) +
           (keeps_episodes(config) ? Episodes::nbytes(config.capacity) : 0) +
           (config.transforms.derived ? NextRows::nbytes(config.capacity) : 0);
}

std::int64_t Replay::grown_nbytes(const ReplayConfig& config, std::int64_t streams) {
    std::int64_t packed = 0;  // of a derived next_obs each value may be kept beside its obs
    for (const Column& column : config.fields) packed += column.compressed ? column.bytes : 0;
    return config.capacity * packed +
           (keeps_episodes(config) ? Episodes::grown_nbytes(config.capacity, streams) : 0) +
           (config.transforms.derived ? NextRows::grown_nbytes(config.capacity, row_nbytes(config)) : 0);
}

}  // namespace replaylab
