// What follows from a declaration alone: which fields have columns, what a row shows of them, and how much
// memory all of it takes.

#include <algorithm>

#include "replay/replay.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

bool among(const std::vector<std::int64_t>& numbers, std::size_t one) {
    return std::find(numbers.begin(), numbers.end(), static_cast<std::int64_t>(one)) != numbers.end();
}

}  // namespace

std::vector<std::int64_t> ReplayConfig::stored_fields() const {
    std::vector<std::int64_t> stored;
    for (std::size_t f = 0; f < fields.size() && !rows_elsewhere; ++f)
        if (!transforms.derived || !is_next_obs(fields[f].name))
            stored.push_back(static_cast<std::int64_t>(f));
    return stored;
}

std::vector<Column> ReplayConfig::stored_columns() const {
    std::vector<Column> columns;
    for (const std::int64_t f : stored_fields()) columns.push_back(fields[static_cast<std::size_t>(f)]);
    return columns;
}

std::vector<Shown> ReplayConfig::shown_fields(bool transformed) const {
    const std::vector<std::int64_t> stored = stored_fields();
    const auto column_of = [&](std::int64_t field) {
        return std::find(stored.begin(), stored.end(), field) - stored.begin();
    };
    std::vector<Shown> shown;
    for (std::size_t f = 0; f < fields.size() && !rows_elsewhere; ++f) {
        const std::string& name = fields[f].name;
        const std::int64_t partner = transforms.partners[f];
        Shown one;
        one.of_next = transforms.derived && is_next_obs(name);
        one.column = column_of(one.of_next ? partner : static_cast<std::int64_t>(f));
        if (transformed) {
            one.of_last = among(transforms.last, f);
            one.state = among(transforms.states, f);
            one.after = partner >= 0;
            if (among(transforms.stacked, f))
                one.before = column_of(one.after ? partner : static_cast<std::int64_t>(f));
        }
        shown.push_back(one);
    }
    return shown;
}

bool ReplayConfig::keeps_episodes() const {
    return transforms.looks_around() || has(sampler, &SamplerKind::episodes);
}

std::int64_t ReplayConfig::environments_nbytes() const {
    const bool noted = num_envs > 1 && retention == Retention::fifo && !rows_elsewhere && !keeps_episodes();
    return noted ? 4 * capacity : 0;
}

std::int64_t ReplayConfig::row_nbytes() const {
    std::vector<Column> columns = stored_columns();
    return RowStore::lay_out(columns);
}

std::int64_t ReplayConfig::nbytes() const {
    return row_nbytes() * (capacity + 1) + (count_replays ? 4 * capacity : 0) +
           sampler_nbytes(sampler, capacity, transforms.length > 0) + Ring::nbytes(capacity, retention) +
           environments_nbytes() + (keeps_episodes() ? Episodes::nbytes(capacity) : 0) +
           (transforms.derived ? NextRows::nbytes(capacity) : 0) +
           (clock_of(sampler).empty() ? 0 : 8 * capacity);
}

std::int64_t ReplayConfig::grown_nbytes(std::int64_t streams) const {
    std::int64_t packed = 0;  // of a derived next_obs each value may be kept beside its obs
    for (const Column& column : fields) packed += column.compressed ? column.bytes : 0;
    return capacity * packed + (keeps_episodes() ? Episodes::grown_nbytes(capacity, streams) : 0) +
           (transforms.derived ? NextRows::grown_nbytes(capacity, row_nbytes()) : 0);
}

}  // namespace replaylab
