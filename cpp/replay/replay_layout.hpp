// What follows from a declaration alone: which fields have columns, what a row shows of them, and how much
// memory all of it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/replay.hpp"

namespace replaylab {

// Fields that have a column: all but a derived next_obs, and none where somebody else has the rows.
std::vector<std::int64_t> stored_fields(const ReplayConfig& config);
std::vector<Column> stored_columns(const ReplayConfig& config);

// Where each field is stored and what of a row it shows.
std::vector<Shown> shown_fields(const ReplayConfig& config, bool transformed);

bool keeps_episodes(const ReplayConfig& config);

// Bytes for the number of the environment of each slot's step: none with one environment, or where the record
// of its episode holds that number.
std::int64_t environments_nbytes(const ReplayConfig& config);

}  // namespace replaylab
