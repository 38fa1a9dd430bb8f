// The sum tree alone, for `test_sum_tree.py`: targets that no seed would ever draw can be given to it here.
#include <algorithm>
#include <cstdint>
#include <vector>

#define private public  // both ways down, portable and AVX2, are to be compared
#include "indexes/sum_tree.hpp"
#undef private
#include "support/dispatch.hpp"

using replaylab::SumTree;

extern "C" {

void* tree_new(std::int64_t capacity) { return new SumTree(capacity); }
void tree_delete(void* tree) { delete static_cast<SumTree*>(tree); }
double tree_total(const void* tree) { return static_cast<const SumTree*>(tree)->total(); }
float tree_smallest_positive(const void* tree) {
    return static_cast<const SumTree*>(tree)->smallest_positive();
}
float tree_largest(const void* tree) { return static_cast<const SumTree*>(tree)->largest(); }

void tree_set(void* tree, const std::int64_t* slots, const float* values, std::int64_t n) {
    static_cast<SumTree*>(tree)->set(slots, values, n);
}

void tree_find(const void* tree, double* targets, std::int64_t n, std::int64_t* slots) {
    static_cast<const SumTree*>(tree)->find(targets, n, slots);
}

void tree_find_portable(const void* tree, double* targets, std::int64_t n, std::int64_t* slots) {
    std::fill(slots, slots + n, 0);
    static_cast<const SumTree*>(tree)->find_portable(targets, n, slots);
}

}  // extern "C"
