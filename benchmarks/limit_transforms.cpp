// The limit of n-step returns and of hindsight with its goals.
//
// As in limit.cpp: no Python, no checks, no ids, no weights, steps of one environment in one contiguous row
// each, and everything in a batch goes stage by stage with prefetch, so that the cache misses of the whole
// batch overlap. Ends of episodes are respected. Hindsight is without the reward function.
//
//   limit_transforms <rows> serve    reads "<operation> <calls>" lines, answers each with nanoseconds a call

#include <cmath>

#include "limit.hpp"

namespace {

constexpr int kBatch = 256;

inline void prefetch(const void* first, std::size_t bytes) {
    const char* at = static_cast<const char*>(first);
    for (std::size_t line = 0; line < bytes; line += kLine) __builtin_prefetch(at + line);
    __builtin_prefetch(at + bytes - 1);
}

/// The rows of n_step.py, and returns of the next three rewards.
class NStep {
  public:
    explicit NStep(std::uint32_t rows) : rows_(rows), store_(allocate<Row>(rows + kSteps)) {
        for (std::uint32_t i = 0; i < rows_; ++i) {
            for (float& x : store_[i].obs) x = random_.unit();
            store_[i].reward = random_.unit();
            (i / kEpisode % 2 == 0 ? store_[i].terminated : store_[i].truncated) =
                i % kEpisode == kEpisode - 1;
        }
        store_[rows_ - 1].truncated = 1;
        obs_ = allocate<float>(kBatch * 17);
        next_obs_ = allocate<float>(kBatch * 17);
        action_ = allocate<float>(kBatch * 6);
        reward_ = allocate<float>(kBatch);
        discount_ = allocate<float>(kBatch);
        steps_ = allocate<std::int64_t>(kBatch);
        ends_ = allocate<std::uint8_t>(kBatch * 2);
    }

    void sample() {
        for (std::uint32_t& i : index_) {
            i = random_.below(rows_);
            const Row* row = &store_[i];
            prefetch(row->obs, sizeof(row->obs) + sizeof(row->action));
            for (int k = 0; k < kSteps - 1; ++k) prefetch(&row[k].reward, kOutcome);
            prefetch(row[kSteps - 1].next_obs, sizeof(row->next_obs) + kOutcome);
        }
        for (int b = 0; b < kBatch; ++b) {
            const Row* row = &store_[index_[b]];
            std::memcpy(obs_ + 17 * b, row->obs, sizeof(row->obs));
            std::memcpy(action_ + 6 * b, row->action, sizeof(row->action));
            float sum = row->reward, discount = kGamma;
            int steps = 1;
            for (; steps < kSteps && (row->terminated | row->truncated) == 0; ++steps) {
                ++row;
                sum += discount * row->reward;
                discount *= kGamma;
            }
            std::memcpy(next_obs_ + 17 * b, row->next_obs, sizeof(row->next_obs));
            reward_[b] = sum;
            discount_[b] = row->terminated ? 0 : discount;
            steps_[b] = steps;
            ends_[b] = row->terminated;
            ends_[kBatch + b] = row->truncated;
        }
    }

  private:
    struct Row {
        float obs[17], action[6], next_obs[17], reward;
        std::uint8_t terminated, truncated, pad[2];
    };
    static_assert(sizeof(Row) == 168);
    static constexpr int kSteps = 3;
    static constexpr std::uint32_t kEpisode = 400;
    static constexpr float kGamma = 0.99f;
    static constexpr std::size_t kOutcome = sizeof(float) + 2;

    std::uint32_t rows_;
    Row* store_;
    Random random_{1};
    std::uint32_t index_[kBatch]{};
    float *obs_, *next_obs_, *action_, *reward_, *discount_;
    std::int64_t* steps_;
    std::uint8_t* ends_;
};

/// The rows of hindsight.py; four in five get the goal achieved at a later step of their episode.
class Hindsight {
  public:
    explicit Hindsight(std::uint32_t rows)
        : rows_(rows), store_(allocate<Row>(rows)), episode_end_(allocate<std::uint32_t>(rows)) {
        for (std::uint32_t i = 0; i < rows_; ++i) {
            for (float& x : store_[i].next_achieved) x = random_.unit();
            episode_end_[i] = std::min(rows_, i / kEpisode * kEpisode + kEpisode);
        }
        obs_ = allocate<float>(kBatch * kObs);
        next_obs_ = allocate<float>(kBatch * kObs);
        action_ = allocate<float>(kBatch * 4);
        for (float*& goals : goals_) goals = allocate<float>(kBatch * kGoal);
        reward_ = allocate<float>(kBatch);
        ends_ = allocate<std::uint8_t>(kBatch * 3);
    }

    void sample() {
        for (std::uint32_t& i : index_) {
            i = random_.below(rows_);
            __builtin_prefetch(&episode_end_[i]);
            prefetch(&store_[i], sizeof(Row));
        }
        for (int b = 0; b < kBatch; ++b) {
            const std::uint32_t i = index_[b];
            relabelled_[b] = random_.unit() < kShare;
            goal_[b] = i;
            if (!relabelled_[b]) continue;
            goal_[b] += random_.below(episode_end_[i] - i);
            prefetch(store_[goal_[b]].next_achieved, kGoalBytes);
        }
        for (int b = 0; b < kBatch; ++b) {
            const Row& row = store_[index_[b]];
            const float* achieved = store_[goal_[b]].next_achieved;
            std::memcpy(obs_ + kObs * b, row.obs, sizeof(row.obs));
            std::memcpy(goals_[0] + kGoal * b, row.achieved, kGoalBytes);
            std::memcpy(goals_[1] + kGoal * b, relabelled_[b] ? achieved : row.desired, kGoalBytes);
            std::memcpy(action_ + 4 * b, row.action, sizeof(row.action));
            std::memcpy(next_obs_ + kObs * b, row.next_obs, sizeof(row.next_obs));
            std::memcpy(goals_[2] + kGoal * b, row.next_achieved, kGoalBytes);
            std::memcpy(goals_[3] + kGoal * b, relabelled_[b] ? achieved : row.next_desired, kGoalBytes);
            reward_[b] = row.reward;
            ends_[b] = row.terminated;
            ends_[kBatch + b] = row.truncated;
            ends_[2 * kBatch + b] = relabelled_[b];
        }
    }

  private:
    static constexpr int kObs = 25, kGoal = 3;
    static constexpr std::size_t kGoalBytes = kGoal * sizeof(float);
    static constexpr std::uint32_t kEpisode = 50;
    static constexpr float kShare = 0.8f;
    struct Row {
        float obs[kObs], achieved[kGoal], desired[kGoal], action[4];
        float next_obs[kObs], next_achieved[kGoal], next_desired[kGoal], reward;
        std::uint8_t terminated, truncated, pad[2];
    };
    static_assert(sizeof(Row) == 272);

    std::uint32_t rows_;
    Row* store_;
    std::uint32_t* episode_end_;  // by row
    Random random_{1};
    std::uint32_t index_[kBatch]{}, goal_[kBatch]{};
    bool relabelled_[kBatch]{};
    float *obs_, *next_obs_, *action_, *goals_[4], *reward_;
    std::uint8_t* ends_;
};

struct Limit {
    NStep n_step;
    Hindsight hindsight;
};

double part(Limit& limit, const std::string& operation, int calls) {
    const auto start = Clock::now();
    if (operation == "n_step_256")
        for (int c = 0; c < calls; ++c) limit.n_step.sample();
    else if (operation == "hindsight_256")
        for (int c = 0; c < calls; ++c) limit.hindsight.sample();
    else
        return -1;
    return nanoseconds(start, Clock::now()) / calls;
}

}  // namespace

int main(int argc, char** argv) {
    const long rows = argc > 1 ? std::atol(argv[1]) : 0;
    if (argc != 3 || std::strcmp(argv[2], "serve") != 0 || rows < kBatch || rows > (1L << 31)) {
        std::fprintf(stderr, "usage: limit_transforms <rows, at least %d> serve\n", kBatch);
        return 2;
    }
    Limit limit{NStep(static_cast<std::uint32_t>(rows)), Hindsight(static_cast<std::uint32_t>(rows))};
    serve(limit);
    return 0;
}
