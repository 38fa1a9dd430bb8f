// An ordered set of keys that knows every key's exact rank: a counted B+ tree. Insert, erase, rank of a key
// and key of a rank are O(log N).
#pragma once

#include <cstdint>
#include <vector>

namespace replaylab {

class RankIndex {
  public:
    using Key = std::uint64_t;

    RankIndex();

    std::int64_t size() const { return nodes_[root_].total; }
    void insert(Key key);  // must not be there
    void erase(Key key);   // must be there

    // How many keys are smaller.
    std::int64_t rank(Key key) const;

    // The key that has this many smaller ones; 0 ≤ rank < size.
    Key select(std::int64_t rank) const;

    // Calls function(key) for every key in order.
    template <typename Function>
    void for_each(const Function& function) const {
        for_each_below(root_, function);
    }

    // About how many bytes an index of so many keys takes: nodes are at least half full.
    static std::int64_t nbytes(std::int64_t keys);

  private:
    static constexpr int kWidth = 64;

    // A leaf holds keys in order; an inner node its children's smallest keys, indices and totals.
    struct Node {
        int count = 0;
        bool leaf = true;
        std::int64_t total = 0;  // keys below
        Key keys[kWidth];
        std::uint32_t children[kWidth];
    };

    template <typename Function>
    void for_each_below(std::uint32_t index, const Function& function) const {
        const Node& node = nodes_[index];
        for (int j = 0; j < node.count; ++j)
            if (node.leaf)
                function(node.keys[j]);
            else
                for_each_below(node.children[j], function);
    }

    std::uint32_t make(bool leaf);
    void release(std::uint32_t index);
    int child_of(const Node& node, Key key) const;
    void insert_at(Node& node, int place, Key key, std::uint32_t child);
    void remove_at(Node& node, int place);
    void split_child(std::uint32_t parent, int place);
    void mend_child(std::uint32_t parent, int place);

    std::vector<Node> nodes_;
    std::vector<std::uint32_t> free_;
    std::uint32_t root_;
};

}  // namespace replaylab
