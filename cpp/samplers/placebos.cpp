// A placebo: prioritized draws without the information which step has which priority.
#include <vector>

#include "samplers/prioritized.hpp"
#include "samplers/sampler_table.hpp"

namespace replaylab {

namespace {

// The priorities of Prioritized, each belonging to another step: step π(a) is drawn with the priority that
// step a earned. π is a uniformly random permutation; with several bins it stays inside each bin of
// neighbouring slots, and among steps stored in the same round of the ring, which have about the same age.
class Permuted : public Prioritized {
  public:
    Permuted(const SamplerConfig& config, std::int64_t capacity)
        : Prioritized(config, capacity), image_(static_cast<std::size_t>(capacity)), origin_(image_.size()) {
        const auto bins = static_cast<std::int64_t>(config.option("bins"));
        in_rounds_ = bins > 1;
        width_ = (capacity + bins - 1) / bins;
    }

    void draw(const Ring& ring, Random& random, std::int64_t batch, const double* beta,
              const Draw& out) override {
        Prioritized::draw(ring, random, batch, beta, out);
        for (std::int64_t k = 0; k < batch; ++k) out.slot[k] = shown(out.slot[k]);
    }
    void distribution(const Ring& ring, const std::int64_t* slots, std::int64_t n, std::int64_t batch,
                      const double* beta, double* out) const override {
        std::vector<std::int64_t> origins;
        for (std::int64_t k = 0; k < n; ++k) origins.push_back(leaf_of(slots[k]));
        Prioritized::distribution(ring, origins.data(), n, batch, beta, out);
    }
    void stored(const Ring& ring, Random& random, const std::int64_t* slots, std::int64_t n) override {
        in_blocks_ = ring.in_blocks();
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t slot = slots[k];
            if (slot < filled_) {
                if (in_rounds_) {
                    pair(at(origin_, slot), at(image_, slot));  // the older steps close the gap
                    pair(slot, slot);
                }
                swap(slot, random);
            }
            while (filled_ <= slot) {  // one, or all up to it: rows of others may begin at any slot
                pair(filled_, filled_);
                swap(filled_++, random);
            }
        }
        Prioritized::stored(ring, random, slots, n);
    }

    void visit(StateVisitor& state) override {
        Prioritized::visit(state);
        state.visit("image", image_);
        state.visit("origin", origin_);
        state.visit("filled", filled_);
    }
    bool fits(const Ring& ring) const override {
        if (!Prioritized::fits(ring) || filled_ != ring.used()) return false;
        for (std::int64_t leaf = 0; leaf < filled_; ++leaf) {
            const std::int64_t slot = shown(leaf);
            if (slot < 0 || slot >= filled_ || leaf_of(slot) != leaf) return false;
            if (in_rounds_ && slot / width_ != leaf / width_) return false;  // of fewer bins
        }
        return true;
    }

    static std::int64_t nbytes(const SamplerConfig& config, std::int64_t capacity, bool in_blocks) {
        return Prioritized::nbytes(config, capacity, in_blocks) + 16 * capacity;
    }

  protected:
    std::int64_t shown(std::int64_t leaf) const override { return image_[static_cast<std::size_t>(leaf)]; }
    std::int64_t leaf_of(std::int64_t slot) const override { return origin_[static_cast<std::size_t>(slot)]; }

  private:
    static std::int64_t& at(std::vector<std::int64_t>& map, std::int64_t slot) {
        return map[static_cast<std::size_t>(slot)];
    }
    // A random swap keeps a uniform permutation uniform and, over a growing set, makes it so.
    void swap(std::int64_t slot, Random& random) {
        const std::int64_t first = in_rounds_ ? slot / width_ * width_ : 0;
        const std::int64_t last = in_rounds_ ? slot : filled_ - 1;
        const std::int64_t other =
            first + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(last - first + 1)));
        const std::int64_t mine = at(image_, slot), its = at(image_, other);
        pair(slot, its);
        pair(other, mine);
    }
    void pair(std::int64_t from, std::int64_t to) {
        at(image_, from) = to;
        at(origin_, to) = from;
        if (in_blocks_) moved_.push_back(to);
    }

    std::vector<std::int64_t> image_, origin_;  // π and its inverse
    bool in_rounds_, in_blocks_ = false;
    std::int64_t width_;
    std::int64_t filled_ = 0;
};

}  // namespace

SamplerFamily placebos() {
    return {{"permuted", make<Permuted>, Permuted::nbytes, /*feedback=*/true, /*priorities=*/"leaves"}};
}

}  // namespace replaylab
