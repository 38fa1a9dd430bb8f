// Two powers of TD errors: one for how often a bin of steps is drawn, another for which steps of the bin.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "samplers/sampler_table.hpp"
#include "storage/episodes.hpp"
#include "support/power.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kBlock = 64;  // slots

// The bit length of a number: 0, 1, 2 for 2–3, 3 for 4–7 and so on.
std::int64_t magnitude(std::int64_t number) {
    std::int64_t bits = 0;
    for (; number > 0; number >>= 1) ++bits;
    return bits;
}

// A bin holds the steps of one magnitude of age and one group. Groups are running episodes, truncated ones by
// the magnitude of the distance to their end, and terminated ones likewise. So a step changes its group once,
// when its episode ends, and the steps of a magnitude of age lie side by side. For each power the sums of
// masses by group are kept of each block of slots; those of the bins, and a step of a bin, are found from
// them.
class BinnedPrioritized : public Sampler {
  public:
    BinnedPrioritized(const SamplerConfig& config, std::int64_t capacity)
        : magnitudes_(magnitude(capacity) + 1),
          groups_(1 + 2 * magnitudes_),
          epsilon_(config.option("epsilon")),
          group_(static_cast<std::size_t>(capacity), 0),
          between_(config.option("between"), capacity, groups_),
          within_(config.option("within"), capacity, groups_) {}

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double*, const Draw& out) override {
        const std::vector<double> between = sums(ring, between_), within = sums(ring, within_);
        std::vector<double> running(between.size());
        double total = 0.0;
        for (std::size_t bin = 0; bin < running.size(); ++bin) running[bin] = total += between[bin];
        for (std::int64_t k = 0; k < batch; ++k) {
            const double place = below(random.uniform() * total, total);
            const auto bin = static_cast<std::size_t>(
                std::upper_bound(running.begin(), running.end(), place) - running.begin());
            const double mass = below(random.uniform() * within[bin], within[bin]);
            out.slot[k] = find(ring, static_cast<std::int64_t>(bin), mass);
            out.probability[k] = between[bin] / total * within_.mass(out.slot[k]) / within[bin];
        }
        std::fill(out.weight, out.weight + batch, 1.0f);
    }

    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t,
                      const double*, double* out) const override {
        const std::vector<double> between = sums(ring, between_), within = sums(ring, within_);
        double total = 0.0;
        for (const double sum : between) total += sum;
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t age = ring.next_id() - 1 - ring.id(slots[k]);
            const auto bin = static_cast<std::size_t>(magnitude(age) * groups_ +
                                                      group_[static_cast<std::size_t>(slots[k])]);
            out[k] = between[bin] / total * within_.mass(slots[k]) / within[bin];
        }
    }

    // New steps get the largest masses among the steps still stored, 1 where there is none.
    void stored(const Ring& ring, Random&, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) {
            removed(ring, slots + k, 1);
            group_[static_cast<std::size_t>(slots[k])] = 0;
            for (Power* power : {&between_, &within_}) {
                const float largest = *std::max_element(power->largest.begin(), power->largest.end());
                power->mass(slots[k]) = largest > 0.0f ? largest : 1.0f;
            }
            touched_.push_back(slots[k] / kBlock);
            refresh_touched();
        }
    }
    void removed(const Ring&, const std::int64_t* slots, std::int64_t n) override {
        for (std::int64_t k = 0; k < n; ++k) {
            between_.mass(slots[k]) = within_.mass(slots[k]) = 0.0f;
            touched_.push_back(slots[k] / kBlock);
        }
        refresh_touched();
    }
    void ended(const Ring& ring, std::int64_t slot, bool terminated) override {
        const Episodes::Span span = ring.episodes()->whole(slot);
        for (std::int64_t step = span.low; step <= span.step; ++step) {
            const std::int64_t place = ring.episodes()->slot(span, step);
            const std::int64_t distance = magnitude(span.step - step);
            group_[static_cast<std::size_t>(place)] =
                static_cast<std::uint8_t>(1 + (terminated ? magnitudes_ : 0) + distance);
            touched_.push_back(place / kBlock);
        }
        refresh_touched();
    }
    void update(const Ring&, const std::int64_t* slots, const double* values, std::int64_t n, bool) override {
        for (std::int64_t k = 0; k < n; ++k) touched_.push_back(slots[k] / kBlock);
        for (Power* power : {&between_, &within_}) {
            if (power->exponent == 0.0) continue;  // every mass is 1
            scratch_.assign(values, values + n);
            for (double& p : scratch_) p = std::abs(p) + epsilon_;
            replaylab::power(scratch_.data(), n, power->exponent);
            for (std::int64_t k = 0; k < n; ++k)
                power->mass(slots[k]) =
                    static_cast<float>(std::clamp(scratch_[static_cast<std::size_t>(k)], kLeast, kMost));
        }
        refresh_touched(/*by_feedback=*/true);
    }

    void visit(StateVisitor& state) override {
        const std::vector<float> exponents{static_cast<float>(between_.exponent),
                                           static_cast<float>(within_.exponent)};
        std::vector<float> saved = exponents;
        std::vector<std::uint32_t> groups(group_.begin(), group_.end());
        state.visit("exponents", saved);
        state.visit("groups", groups);
        state.visit("between", between_.masses);
        state.visit("within", within_.masses);
        state.must(saved == exponents, "exponents");
        state.must(groups.size() == group_.size(), "groups");
        for (const std::uint32_t group : groups) state.must(group < groups_, "groups");
        std::copy(groups.begin(), groups.end(), group_.begin());
        for (const std::vector<float>* masses : {&between_.masses, &within_.masses}) {
            state.must(masses->size() == group_.size(), "masses");
            for (const float mass : *masses) state.must(mass >= 0.0f && mass <= kMost, "masses");
        }
    }
    bool fits(const Ring& ring) const override {
        for (std::int64_t slot = 0; slot < ring.capacity(); ++slot) {
            const bool shows = slot < ring.used() && ring.shows(slot);
            if (shows != (between_.mass(slot) > 0.0f) || shows != (within_.mass(slot) > 0.0f)) return false;
        }
        return true;
    }
    void restored(const Ring&, const std::vector<End>*) override {
        for (std::int64_t block = 0; block < blocks(between_.size()); ++block) touched_.push_back(block);
        refresh_touched();
    }

    static std::int64_t nbytes(const SamplerConfig&, std::int64_t capacity, bool) {
        return 9 * capacity + 2 * blocks(capacity) * (8 * (3 + 2 * magnitude(capacity)) + 4);
    }

  private:
    static constexpr double kLeast = std::numeric_limits<float>::min();
    static constexpr double kMost = std::numeric_limits<float>::max();

    // One power of all TD errors.
    struct Power {
        Power(double exponent, std::int64_t capacity, std::int64_t groups)
            : exponent(exponent),
              masses(static_cast<std::size_t>(capacity), 0.0f),
              sums(static_cast<std::size_t>(blocks(capacity) * groups), 0.0),
              largest(static_cast<std::size_t>(blocks(capacity)), 0.0f) {}

        std::int64_t size() const { return static_cast<std::int64_t>(masses.size()); }
        float& mass(std::int64_t slot) { return masses[static_cast<std::size_t>(slot)]; }
        float mass(std::int64_t slot) const { return masses[static_cast<std::size_t>(slot)]; }

        double exponent;
        std::vector<float> masses;   // by slot; 0: no stored step
        std::vector<double> sums;    // by block and group
        std::vector<float> largest;  // by block
    };

    static std::int64_t blocks(std::int64_t capacity) { return (capacity + kBlock - 1) / kBlock; }

    // The largest number below the total that is not above this one.
    static double below(double target, double total) { return std::min(target, std::nextafter(total, 0.0)); }

    // Calls visit(begin, end) for the slots of all steps of this magnitude of age, oldest first, one call for
    // each block of sums that they are in; ends early if visit returns false.
    template <typename Visit>
    static void each_part(const Ring& ring, std::int64_t age, Visit visit) {
        const std::int64_t youngest = age == 0 ? 0 : std::int64_t{1} << (age - 1);
        const std::int64_t oldest = std::min(std::int64_t{1} << age, ring.used());
        std::int64_t left = oldest - youngest;
        for (std::int64_t slot = left > 0 ? ring.slot_in_use(oldest - 1) : 0; left > 0;) {
            const std::int64_t n = std::min({left, kBlock - slot % kBlock, ring.capacity() - slot});
            if (!visit(slot, slot + n)) return;
            left -= n;
            slot = slot + n == ring.capacity() ? 0 : slot + n;
        }
    }

    // The sum of the masses of each bin. find() adds in the same order.
    std::vector<double> sums(const Ring& ring, const Power& power) const {
        std::vector<double> bins(static_cast<std::size_t>(magnitudes_ * groups_), 0.0);
        for (std::int64_t age = 0; age < magnitudes_; ++age) {
            double* const out = bins.data() + age * groups_;
            each_part(ring, age, [&](std::int64_t slot, std::int64_t end) {
                if (end - slot == kBlock) {
                    const double* const sums = power.sums.data() + slot / kBlock * groups_;
                    for (std::int64_t group = 0; group < groups_; ++group) out[group] += sums[group];
                } else {
                    for (; slot < end; ++slot)
                        out[group_[static_cast<std::size_t>(slot)]] += power.mass(slot);
                }
                return true;
            });
        }
        return bins;
    }

    // The slot of the first step of this bin at which the sum of masses, oldest first, is above the target.
    std::int64_t find(const Ring& ring, std::int64_t bin, double target) const {
        const std::int64_t group = bin % groups_;
        double before = 0.0;
        std::int64_t found = -1;
        each_part(ring, bin / groups_, [&](std::int64_t slot, std::int64_t end) {
            const bool whole = end - slot == kBlock;
            if (whole) {
                const double next =
                    before + within_.sums[static_cast<std::size_t>(slot / kBlock * groups_ + group)];
                if (next <= target) {
                    before = next;
                    return true;
                }
            }
            double here = whole ? 0.0 : before;  // in the order in which these were added
            const double wanted = whole ? target - before : target;
            for (; slot < end; ++slot) {
                if (group_[static_cast<std::size_t>(slot)] != group || within_.mass(slot) == 0.0f) continue;
                found = slot;
                here += within_.mass(slot);
                if (here > wanted) return false;
            }
            before = here;
            return !whole;
        });
        return found;
    }

    void refresh(Power& power, std::int64_t block) {
        const std::int64_t begin = block * kBlock, end = std::min(begin + kBlock, power.size());
        double* const sums = power.sums.data() + block * groups_;
        float& largest = power.largest[static_cast<std::size_t>(block)];
        std::fill(sums, sums + groups_, 0.0);
        largest = 0.0f;
        for (std::int64_t slot = begin; slot < end; ++slot) {
            sums[group_[static_cast<std::size_t>(slot)]] += power.mass(slot);
            largest = std::max(largest, power.mass(slot));
        }
    }
    // Adds up the blocks in touched_; after feedback only where powers depend on it.
    void refresh_touched(bool by_feedback = false) {
        std::sort(touched_.begin(), touched_.end());
        touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
        for (Power* power : {&between_, &within_})
            for (const std::int64_t block : touched_)
                if (!by_feedback || power->exponent != 0.0) refresh(*power, block);
        touched_.clear();
    }

    std::int64_t magnitudes_, groups_;
    double epsilon_;
    std::vector<std::uint8_t> group_;  // by slot
    Power between_, within_;
    std::vector<std::int64_t> touched_;  // blocks
    std::vector<double> scratch_;
};

}  // namespace

SamplerFamily binned_samplers() {
    return {{"binned_prioritized", make<BinnedPrioritized>, BinnedPrioritized::nbytes, /*feedback=*/true,
             /*priorities=*/"", /*episodes=*/true}};
}

}  // namespace replaylab
