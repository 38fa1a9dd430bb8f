#include "n_step.hpp"

#include <cstring>

#include "prefetch.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kAhead = 8;

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

}  // namespace

NStep::NStep(const NStepConfig& config, const RowStore& rows) : config_(config), rows_(rows) {
    for (std::size_t c = 0; c < rows.columns().size(); ++c) {
        const std::string& name = rows.columns()[c].name;
        if (name == "reward") reward_ = static_cast<std::int64_t>(c);
        if (name == "terminated") terminated_ = static_cast<std::int64_t>(c);
        of_last_.push_back(name == "next_obs" || starts_with(name, "next_obs.") || name == "terminated" ||
                           name == "truncated");
    }
}

void NStep::gather(const Ring& ring, const Chain& chain, std::int64_t replica, const std::int64_t* slots,
                   const std::int64_t* places, std::int64_t n, char* const* targets,
                   const NStepTargets& extra) {
    const Column& reward = rows_.columns()[static_cast<std::size_t>(reward_)];
    const Column& terminated = rows_.columns()[static_cast<std::size_t>(terminated_)];
    last_.assign(slots, slots + n);
    for (std::int64_t k = 0; k < n; ++k) {
        if (k + kAhead < n) prefetch(rows_.row(replica, slots[k + kAhead]) + reward.offset);
        std::int64_t slot = slots[k], steps = 0;
        double sum = 0.0, discount = 1.0;
        for (std::int64_t next = slot; next >= 0 && steps < config_.steps; next = chain.next(ring, slot)) {
            slot = next;
            float value;
            std::memcpy(&value, rows_.row(replica, slot) + reward.offset, sizeof value);
            sum += discount * static_cast<double>(value);
            discount *= config_.gamma;
            ++steps;
        }
        const bool over = rows_.row(replica, slot)[terminated.offset] != 0;
        const auto total = static_cast<float>(sum);
        std::memcpy(targets[reward_] + places[k] * reward.bytes, &total, sizeof total);
        extra.discount[places[k]] = over ? 0.0f : static_cast<float>(discount);
        extra.steps[places[k]] = steps;
        last_[static_cast<std::size_t>(k)] = slot;
    }
    first_.assign(targets, targets + of_last_.size());
    last_targets_ = first_;
    for (std::size_t c = 0; c < of_last_.size(); ++c) (of_last_[c] ? first_ : last_targets_)[c] = nullptr;
    first_[static_cast<std::size_t>(reward_)] = last_targets_[static_cast<std::size_t>(reward_)] = nullptr;
    rows_.gather(replica, slots, places, n, first_.data());
    rows_.gather(replica, last_.data(), places, n, last_targets_.data());
}

}  // namespace replaylab
