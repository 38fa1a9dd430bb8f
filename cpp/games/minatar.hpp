// MinAtar (Young & Tian 2019): five Atari games on a board of 10 × 10 cells.
//
// The rules are those of the published package, frame by frame, and so is the order in which random numbers
// are drawn; see docs/laboratory/games.md. A copy of a game is a plain struct without pointers, kept
// by Python as words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/random.hpp"

namespace replaylab::minatar {

constexpr int kSide = 10;  // cells of a side, x to the right and y down
constexpr int kLast = kSide - 1;

enum class Action : std::int8_t { noop, left, up, right, down, fire };
constexpr std::int64_t kActions = 6;

// Whether something is so, in a copy: unlike a bool it may hold anything, as a damaged state does.
using Flag = std::uint8_t;

inline bool on_board(int x) { return x >= 0 && x < kSide; }

// One step to the right or to the left.
inline int beside(int x, bool right) { return right ? x + 1 : x - 1; }

// A rule "with a chance of": true where a uniform number is below it.
inline bool happens(Random& random, double chance) { return random.uniform() < chance; }

// What an action does to a position along one axis, which it does not leave.
inline int moved(int at, Action action, Action less, Action more, int least, int most) {
    return std::clamp(at + (action == more) - (action == less), least, most);
}

// A row of the board as bits, the cell x = 0 lowest.
using Row = std::uint16_t;
constexpr Row kFullRow = (1 << kSide) - 1;

// Lets a board's rows move down by one; the lowest becomes the highest.
inline void move_down(Row* rows) { std::rotate(rows, rows + kLast, rows + kSide); }

// What is seen of a copy, (channels, y, x); all zero at first.
class Screen {
  public:
    explicit Screen(bool* cells) : cells_(cells) {}

    void set(int channel, int x, int y) { cells_[(channel * kSide + y) * kSide + x] = true; }
    void set_if_on_board(int channel, int x, int y) {
        if (on_board(x)) set(channel, x, y);
    }
    void set_rows(int channel, const Row* rows) {
        for (int y = 0; y < kSide; ++y)
            for (int x = 0; x < kSide; ++x)
                cells_[(channel * kSide + y) * kSide + x] = (rows[y] >> x & 1) != 0;
    }

  private:
    bool* cells_;
};

// What a frame brought.
struct Outcome {
    int reward = 0;
    bool terminated = false;
};

// What Python needs of a game, all its copies as rows of `words` words.
struct Rules {
    const char* name;
    std::vector<const char*> channels;
    std::vector<std::int64_t> minimal_actions;  // those that differ in what they do
    std::int64_t words;

    // A copy at the start of an episode, drawing from this stream.
    void (*start)(std::uint64_t* copy, const Random::State& stream);
    Outcome (*step)(std::uint64_t* copy, Action action, double sticky_action_prob, bool ramping);
    void (*show)(const std::uint64_t* copy, Screen screen);
    // Whether a copy is one that the game can be in without harm: nothing outside the board or its list.
    bool (*is_sound)(const std::uint64_t* copy);
};

// A game with its random stream; `Game` has start, step, show and its own is_sound.
template <class Game>
struct Copy {
    Random random;
    std::int64_t last_action;  // at the same place in every game: word `kLastAction`
    Game game;

    static Copy& at(std::uint64_t* words) { return *reinterpret_cast<Copy*>(words); }
    static const Copy& at(const std::uint64_t* words) { return *reinterpret_cast<const Copy*>(words); }
};
constexpr std::int64_t kLastAction = 4;

template <class Game>
Rules rules_of(const char* name, std::vector<const char*> channels, std::vector<std::int64_t> minimal) {
    using Whole = Copy<Game>;
    static_assert(offsetof(Whole, last_action) == kLastAction * sizeof(std::uint64_t));
    static_assert(std::is_trivially_copyable_v<Whole> && alignof(Whole) <= alignof(std::uint64_t));
    return {name,
            std::move(channels),
            std::move(minimal),
            (sizeof(Whole) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t),
            [](std::uint64_t* words, const Random::State& stream) {
                Whole* copy = new (words) Whole{Random(stream), 0, {}};
                copy->game.start(copy->random);
            },
            [](std::uint64_t* words, Action action, double sticky, bool ramping) {
                Whole& copy = Whole::at(words);
                if (happens(copy.random, sticky)) action = static_cast<Action>(copy.last_action);
                copy.last_action = static_cast<std::int64_t>(action);
                return copy.game.step(action, copy.random, ramping);
            },
            [](const std::uint64_t* words, Screen screen) { Whole::at(words).game.show(screen); },
            [](const std::uint64_t* words) {
                const Whole& copy = Whole::at(words);
                return copy.last_action >= 0 && copy.last_action < kActions && copy.game.is_sound();
            }};
}

Rules asterix();
Rules breakout();
Rules freeway();
Rules seaquest();
Rules space_invaders();

}  // namespace replaylab::minatar
