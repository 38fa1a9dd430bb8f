#include "indexes/block_index.hpp"

namespace replaylab {

BlockIndex::BlockIndex(std::int64_t capacity)
    : masses_(static_cast<std::size_t>(capacity), kNoBlock), last_(masses_.size(), kNone) {
    std::int64_t nodes = capacity;
    do {
        nodes = (nodes + kWidth - 1) / kWidth;
        levels_.emplace_back(static_cast<std::size_t>(nodes));
    } while (nodes > 1);
}

std::int64_t BlockIndex::nbytes(std::int64_t capacity) {
    std::int64_t bytes = 12 * capacity;
    do {
        capacity = (capacity + kWidth - 1) / kWidth;
        bytes += capacity * static_cast<std::int64_t>(sizeof(Node));
    } while (capacity > 1);
    return bytes;
}

// Recomputes the nodes above the slots that were put, level by level.
void BlockIndex::refresh() {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
        std::sort(list_.begin(), list_.end());
        list_.erase(std::unique(list_.begin(), list_.end()), list_.end());
        const std::size_t below = level == 0 ? masses_.size() : levels_[level - 1].size();
        for (std::int64_t& index : list_) {
            Node node;
            const std::size_t begin = static_cast<std::size_t>(index * kWidth);
            const std::size_t end = std::min(begin + static_cast<std::size_t>(kWidth), below);
            for (std::size_t child = begin; child < end; ++child) {
                if (level > 0) {
                    node.least = std::min(node.least, levels_[level - 1][child].least);
                    node.count += levels_[level - 1][child].count;
                } else if (masses_[child] >= 0.0) {
                    if (masses_[child] > 0.0) node.least = std::min(node.least, masses_[child]);
                    ++node.count;
                }
            }
            levels_[level][static_cast<std::size_t>(index)] = node;
            index /= kWidth;
        }
    }
    list_.clear();
}

std::int64_t BlockIndex::select(std::int64_t k) const {
    std::size_t index = 0;  // of a node on the level looked at, then of its first child
    for (std::size_t level = levels_.size(); level-- > 0; index *= static_cast<std::size_t>(kWidth))
        while (k >= levels_[level][index].count) k -= levels_[level][index++].count;
    while (masses_[index] < 0.0 || k-- > 0) ++index;
    return static_cast<std::int64_t>(index);
}

}  // namespace replaylab
