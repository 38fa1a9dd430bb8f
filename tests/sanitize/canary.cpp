// One bug of each kind, to see that the sanitizers are awake.
#include <cstdint>
#include <thread>

extern "C" {

int heap_overflow() {
    volatile int n = 4;
    int* numbers = new int[n]();
    const int beyond = numbers[n];
    delete[] numbers;
    return beyond;
}

int signed_overflow() {
    volatile std::int32_t most = INT32_MAX;
    return most + 1;
}

int data_race() {
    int count = 0;
    const auto work = [&count] {
        for (int k = 0; k < 10000; ++k) ++*const_cast<volatile int*>(&count);
    };
    std::thread one(work), two(work);
    one.join();
    two.join();
    return count;
}
}
