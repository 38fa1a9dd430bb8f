// The mapped rows alone, with writers that are killed: run by `test_storage_kills.py`.
//
//   probe PATH kills N SEED      N rounds of several writers, each killed at another moment
//   probe PATH deaths N SEED     the same, but each kills itself, or waits, between two stores of publish()
//   probe PATH race SECONDS      writers and a reader at once, nobody killed
// A fifth argument `small` makes the ring so small that it goes round while a writer waits.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "storage/mapped_rows.hpp"

using replaylab::MappedConfig;
using replaylab::MappedRows;

namespace {

constexpr std::int64_t kWords = 96;  // of a row: long enough to be killed in the middle of
constexpr std::int64_t kEnvs = 2;
constexpr int kWriters = 3;
bool small_ring = false;
bool dying = false;  // between two stores, now and then
std::mt19937_64 fate;

struct Shared {  // what the writers promise
    std::atomic<std::int64_t> added[kWriters];
    std::atomic<std::int64_t> newest[kWriters];  // id of the last add that returned
};

}  // namespace

void between_stores() {
    if (!dying) return;
    const auto dice = fate() % 20000;
    if (dice == 0) raise(SIGKILL);
    if (dice < 20) usleep(static_cast<useconds_t>(fate() % 300));
}

namespace {

MappedConfig config(const char* path) {
    MappedConfig asked;
    asked.path = path;
    asked.declaration = "probe";
    asked.capacity = small_ring ? 5 : 500;
    asked.headroom = small_ring ? 2 : 64;
    asked.writers = 2 * kWriters;
    asked.replicas = 2;
    asked.num_envs = kEnvs;
    asked.stride = 8 * kWords;
    return asked;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void broken(const char* what, std::int64_t a = 0, std::int64_t b = 0) {
    std::printf("BROKEN: %s (%lld, %lld)\n", what, static_cast<long long>(a), static_cast<long long>(b));
    std::fflush(stdout);
    std::_Exit(1);
}

// A row: who, its number for him, and words that follow from the two.
std::uint64_t word(std::uint64_t who, std::uint64_t number, std::int64_t k) {
    return who * 1000003u + number * 31u + static_cast<std::uint64_t>(k);
}
void fill(char* row, std::uint64_t who, std::uint64_t number) {
    for (std::int64_t k = 0; k < kWords; ++k) {
        const std::uint64_t value = k == 0 ? who : k == 1 ? number : word(who, number, k);
        std::memcpy(row + 8 * k, &value, 8);
    }
}
bool whole(const std::uint64_t* words) {
    for (std::int64_t k = 2; k < kWords; ++k)
        if (words[k] != word(words[0], words[1], k)) return false;
    return true;
}

void write_for_ever(const char* path, Shared* shared, int who, std::uint64_t first) {
    MappedRows rows(config(path));
    for (std::uint64_t number = first;; ++number) {
        for (std::int64_t r = 0; r < 2; ++r) {
            fill(rows.blank(r), static_cast<std::uint64_t>(who), number);
            const std::int64_t id = rows.publish(r, number % kEnvs, number % 7 == 6);
            if (r == 1) {
                shared->newest[who] = id;
                shared->added[who] = static_cast<std::int64_t>(number) + 1;
            }
        }
    }
}

// Reads all that can be drawn: every step whole, numbers of each writer in order without a gap.
std::int64_t check(const MappedRows& rows, std::int64_t capacity, bool still) {
    std::int64_t seen = 0;
    std::vector<std::uint64_t> copy(kWords);
    for (std::int64_t r = 0; r < 2; ++r) {
        const std::int64_t next = rows.next_id(r);
        std::int64_t last[kWriters];
        for (auto& one : last) one = -1;
        for (std::int64_t id = next > capacity ? next - capacity : 0; id < next; ++id) {
            MappedRows::Step step;
            const bool found = rows.find(r, id, step);
            if (found) std::memcpy(copy.data(), rows.rows(r) + step.row * 8 * kWords, 8 * kWords);
            if (!found || !rows.whole_since(r, id)) {
                if (still) broken("a step is lost", id, next);
                for (auto& one : last) one = -1;
                continue;
            }
            if (!whole(copy.data())) broken("a torn row", id, next);
            const auto who = copy[0];
            const auto number = static_cast<std::int64_t>(copy[1]);
            if (who >= kWriters) broken("an unwritten row", id);
            // A writer killed between its two replicas repeats the number.
            if (last[who] >= 0 && number != last[who] + 1 && number != last[who])
                broken("a gap in what a writer added", number, last[who]);
            if (step.stream % kEnvs != number % kEnvs) broken("another environment's step", id, step.stream);
            if (step.ends != (number % 7 == 6)) broken("an end that is none", id);
            last[who] = number;
            ++seen;
        }
    }
    for (std::int64_t k = 0; k < kWords; ++k)
        if (rows.rows(0)[rows.zero_row() * 8 * kWords + k] != 0) broken("the zero row is written to");
    return seen;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const char* path = argv[1];
    const std::string what = argv[2];
    small_ring = argc > 5 && std::string(argv[5]) == "small";
    const std::int64_t capacity = config(path).capacity;
    auto* shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    MappedRows rows(config(path));
    if (what == "race") {
        std::vector<pid_t> writers;
        for (int who = 0; who < kWriters; ++who) {
            const pid_t child = fork();
            if (child == 0) write_for_ever(path, shared, who, 0);
            writers.push_back(child);
        }
        std::int64_t seen = 0;
        const double end = now() + std::atof(argv[3]);
        while (now() < end) seen += check(rows, capacity, false);
        for (const pid_t child : writers) kill(child, SIGKILL);
        for (const pid_t child : writers) waitpid(child, nullptr, 0);
        std::printf("%lld steps added, %lld read\n", static_cast<long long>(rows.next_id(0)),
                    static_cast<long long>(seen));
        return check(rows, capacity, true) > 0 && seen > 0 ? 0 : 1;
    }
    const bool by_themselves = what == "deaths";
    std::mt19937_64 random(std::strtoull(argv[4], nullptr, 10));
    pid_t writers[kWriters];
    std::uint64_t numbers[kWriters] = {};
    const auto start = [&](int who) {
        const auto seed = random();
        writers[who] = fork();
        if (writers[who] != 0) return;
        fate.seed(seed);
        dying = by_themselves;
        write_for_ever(path, shared, who, numbers[who]);
    };
    for (int who = 0; who < kWriters; ++who) start(who);
    std::int64_t head = 0;
    for (int round = 0; round < std::atoi(argv[3]); ++round) {
        int who = static_cast<int>(random() % kWriters);
        if (by_themselves) {
            const pid_t dead = waitpid(-1, nullptr, 0);
            for (int one = 0; one < kWriters; ++one)
                if (writers[one] == dead) who = one;
        } else {
            usleep(static_cast<useconds_t>(random() % 3000));
            kill(writers[who], SIGKILL);
            waitpid(writers[who], nullptr, 0);
        }
        const std::int64_t promised = shared->newest[who];
        if (shared->added[who] > 0 && rows.next_id(1) <= promised)
            broken("a promised step is lost", promised);
        numbers[who] = static_cast<std::uint64_t>(shared->added[who]);
        check(rows, capacity, false);
        // The others continue.
        for (int other = by_themselves ? kWriters : 0; other < kWriters; ++other) {
            const double patience = now() + 10.0;
            const std::int64_t before = shared->added[other];
            while (other != who && shared->added[other] == before)
                if (now() > patience) broken("a writer hangs", other, round);
        }
        start(who);
        if (rows.next_id(0) < head) broken("the head went back");
        head = rows.next_id(0);
    }
    for (const pid_t child : writers) kill(child, SIGKILL);
    for (const pid_t child : writers) waitpid(child, nullptr, 0);
    // All at rest, and none may have lost its row: as many writers as there are places can still add.
    check(rows, capacity, true);
    std::vector<MappedRows*> all;
    for (std::int64_t w = 0; w < 2 * kWriters; ++w) {
        all.push_back(new MappedRows(config(path)));
        std::memset(all.back()->blank(0), 0xee, 8 * kWords);  // its own, or it tears another's
        std::memset(all.back()->blank(1), 0xee, 8 * kWords);
    }
    check(rows, capacity, true);
    try {
        MappedRows(config(path)).blank(0);
        broken("more writers than places");
    } catch (const replaylab::Error&) {
    }
    for (std::size_t a = 0; a < all.size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
            if (all[a]->blank(0) - all[a]->rows(0) == all[b]->blank(0) - all[b]->rows(0))
                broken("a row of two writers");
    for (MappedRows* one : all) delete one;
    std::printf("%lld steps, all whole\n", static_cast<long long>(rows.next_id(0)));
    return 0;
}
