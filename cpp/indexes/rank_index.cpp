#include "indexes/rank_index.hpp"

#include <algorithm>

namespace replaylab {

RankIndex::RankIndex() : root_(make(true)) {}

std::int64_t RankIndex::nbytes(std::int64_t keys) {
    return (keys / (kWidth / 2) + 2) * static_cast<std::int64_t>(sizeof(Node)) * (kWidth / 2) /
           (kWidth / 2 - 1);
}

std::uint32_t RankIndex::make(bool leaf) {
    std::uint32_t index;
    if (free_.empty()) {
        index = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back();
    } else {
        index = free_.back();
        free_.pop_back();
        nodes_[index] = Node{};
    }
    nodes_[index].leaf = leaf;
    return index;
}

void RankIndex::release(std::uint32_t index) { free_.push_back(index); }

// The child whose range a key falls into: the last whose smallest key is not above it, or the first.
int RankIndex::child_of(const Node& node, Key key) const {
    const int after = static_cast<int>(std::upper_bound(node.keys, node.keys + node.count, key) - node.keys);
    return std::max(after - 1, 0);
}

void RankIndex::insert_at(Node& node, int place, Key key, std::uint32_t child) {
    std::copy_backward(node.keys + place, node.keys + node.count, node.keys + node.count + 1);
    if (!node.leaf)
        std::copy_backward(node.children + place, node.children + node.count, node.children + node.count + 1);
    node.keys[place] = key;
    node.children[place] = child;
    ++node.count;
}

void RankIndex::remove_at(Node& node, int place) {
    std::copy(node.keys + place + 1, node.keys + node.count, node.keys + place);
    if (!node.leaf) std::copy(node.children + place + 1, node.children + node.count, node.children + place);
    --node.count;
}

// Moves the upper half of a full child into a new sibling to its right. make() may move all nodes, so
// references are taken after it.
void RankIndex::split_child(std::uint32_t parent, int place) {
    const std::uint32_t left_index = nodes_[parent].children[place];
    const std::uint32_t right_index = make(nodes_[left_index].leaf);
    Node& left = nodes_[left_index];
    Node& right = nodes_[right_index];
    const int half = left.count / 2;
    right.count = left.count - half;
    std::copy(left.keys + half, left.keys + left.count, right.keys);
    if (left.leaf) {
        right.total = right.count;
    } else {
        std::copy(left.children + half, left.children + left.count, right.children);
        for (int j = 0; j < right.count; ++j) right.total += nodes_[right.children[j]].total;
    }
    left.count = half;
    left.total -= right.total;
    insert_at(nodes_[parent], place + 1, right.keys[0], right_index);
}

// Full nodes are split on the way down, so that the leaf and every parent has room.
void RankIndex::insert(Key key) {
    if (nodes_[root_].count == kWidth) {
        const std::uint32_t above = make(false);
        Node& node = nodes_[above];
        node.count = 1;
        node.keys[0] = nodes_[root_].keys[0];
        node.children[0] = root_;
        node.total = nodes_[root_].total;
        root_ = above;
        split_child(above, 0);
    }
    std::uint32_t at = root_;
    while (!nodes_[at].leaf) {
        int place = child_of(nodes_[at], key);
        if (nodes_[nodes_[at].children[place]].count == kWidth) {
            split_child(at, place);
            if (key >= nodes_[at].keys[place + 1]) ++place;
        }
        Node& node = nodes_[at];
        ++node.total;
        node.keys[place] = std::min(node.keys[place], key);
        at = node.children[place];
    }
    Node& leaf = nodes_[at];
    ++leaf.total;
    insert_at(leaf, static_cast<int>(std::lower_bound(leaf.keys, leaf.keys + leaf.count, key) - leaf.keys),
              key, 0);
}

// Gives a child that is down to a quarter keys of a neighbor, or all its keys to it.
void RankIndex::mend_child(std::uint32_t parent_index, int place) {
    Node& parent = nodes_[parent_index];
    if (parent.count < 2) return;
    const int left_place = place == 0 ? 0 : place - 1;
    const std::uint32_t right_index = parent.children[left_place + 1];
    Node& left = nodes_[parent.children[left_place]];
    Node& right = nodes_[right_index];
    // A pair that fits into half a node becomes one; a fuller pair shares alike, so that neither is near
    // full.
    const int together = left.count + right.count;
    const int wanted = together <= kWidth / 2 ? together : together / 2;  // keys the left one shall have
    std::int64_t moved = 0;
    const auto total_of = [&](const Node& node, int from, int to) {
        std::int64_t total = node.leaf ? to - from : 0;
        for (int j = from; !node.leaf && j < to; ++j) total += nodes_[node.children[j]].total;
        return total;
    };
    if (wanted >= left.count) {
        const int n = wanted - left.count;
        moved = total_of(right, 0, n);
        std::copy(right.keys, right.keys + n, left.keys + left.count);
        std::copy(right.children, right.children + n, left.children + left.count);
        std::copy(right.keys + n, right.keys + right.count, right.keys);
        std::copy(right.children + n, right.children + right.count, right.children);
    } else {
        const int n = left.count - wanted;
        moved = -total_of(left, wanted, left.count);
        std::copy_backward(right.keys, right.keys + right.count, right.keys + right.count + n);
        std::copy_backward(right.children, right.children + right.count, right.children + right.count + n);
        std::copy(left.keys + wanted, left.keys + left.count, right.keys);
        std::copy(left.children + wanted, left.children + left.count, right.children);
    }
    left.count = wanted;
    right.count = together - wanted;
    left.total += moved;
    right.total -= moved;
    if (right.count == 0) {
        remove_at(parent, left_place + 1);
        release(right_index);
    } else {
        parent.keys[left_place + 1] = right.keys[0];
    }
}

// Thin nodes are fixed on the way down, so that no node but the root is ever left empty.
void RankIndex::erase(Key key) {
    std::uint32_t at = root_;
    while (!nodes_[at].leaf) {
        int place = child_of(nodes_[at], key);
        if (nodes_[nodes_[at].children[place]].count <= kWidth / 4) {
            mend_child(at, place);
            place = child_of(nodes_[at], key);
        }
        --nodes_[at].total;
        at = nodes_[at].children[place];
    }
    Node& leaf = nodes_[at];
    --leaf.total;
    remove_at(leaf, static_cast<int>(std::lower_bound(leaf.keys, leaf.keys + leaf.count, key) - leaf.keys));
    while (!nodes_[root_].leaf && nodes_[root_].count == 1) {
        release(root_);
        root_ = nodes_[root_].children[0];
    }
}

// The keys that lie before: in each node on the way down, those of all children to the left.
std::int64_t RankIndex::rank(Key key) const {
    std::int64_t smaller = 0;
    const Node* node = &nodes_[root_];
    while (!node->leaf) {
        const int place = child_of(*node, key);
        for (int j = 0; j < place; ++j) smaller += nodes_[node->children[j]].total;
        node = &nodes_[node->children[place]];
    }
    return smaller + (std::lower_bound(node->keys, node->keys + node->count, key) - node->keys);
}

// The other way round: on each level, past as many whole children as the rank allows.
RankIndex::Key RankIndex::select(std::int64_t rank) const {
    const Node* node = &nodes_[root_];
    while (!node->leaf) {
        int place = 0;
        while (rank >= nodes_[node->children[place]].total) rank -= nodes_[node->children[place++]].total;
        node = &nodes_[node->children[place]];
    }
    return node->keys[rank];
}

}  // namespace replaylab
