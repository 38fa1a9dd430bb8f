// Asterix: collect treasure, avoid enemies; both cross the board in eight rows.
#include "games/minatar.hpp"

namespace replaylab::minatar {

namespace {

enum Channel { player, enemy, trail, gold };

constexpr int kRows = 8;  // in which something may cross: y = 1 to 8, one thing in each
constexpr int kRampInterval = 100, kSpawnInterval = 10, kMoveInterval = 5;

struct Asterix {
    struct Thing {
        Flag there, right, is_gold;
        std::int8_t x;
    };

    int x, y;
    Thing things[kRows];
    int spawn_interval, spawn_timer, move_interval, move_timer, ramp_timer, ramps;

    void start(Random&) {
        x = y = 5;
        for (Thing& thing : things) thing = {};
        spawn_interval = spawn_timer = kSpawnInterval;
        move_interval = move_timer = kMoveInterval;
        ramp_timer = kRampInterval;
        ramps = 0;
    }

    Outcome step(Action action, Random& random, bool ramping) {
        Outcome outcome;
        if (spawn_timer == 0) {
            spawn(random);
            spawn_timer = spawn_interval;
        }
        x = moved(x, action, Action::left, Action::right, 0, kLast);
        y = moved(y, action, Action::up, Action::down, 1, kRows);
        meet(outcome);
        if (move_timer == 0) {
            move_timer = move_interval;
            for (Thing& thing : things) {
                thing.x = static_cast<std::int8_t>(beside(thing.x, thing.right));
                thing.there = thing.there != 0 && on_board(thing.x);
                if (!thing.there) thing = {};
            }
            meet(outcome);
        }
        --spawn_timer;
        --move_timer;
        if (ramping) ramp();
        return outcome;
    }

    // Only what crosses the player's row can be where the player is.
    void meet(Outcome& outcome) {
        Thing& thing = things[y - 1];
        if (!thing.there || thing.x != x) return;
        if (thing.is_gold) {
            ++outcome.reward;
            thing = {};
        } else {
            outcome.terminated = true;
        }
    }

    void spawn(Random& random) {
        const bool right = happens(random, 1.0 / 2), is_gold = happens(random, 1.0 / 3);
        const auto full = static_cast<std::uint64_t>(
            std::count_if(things, things + kRows, [](const Thing& thing) { return thing.there; }));
        if (full == kRows) return;
        std::uint64_t skip = random.below(kRows - full);
        for (Thing& thing : things)
            if (!thing.there && skip-- == 0) {
                thing = {true, right, is_gold, static_cast<std::int8_t>(right ? 0 : kLast)};
                return;
            }
    }

    // Every 102 frames all comes one frame sooner; moves only every other time.
    void ramp() {
        if (spawn_interval == 1 && move_interval == 1) return;
        if (ramp_timer-- >= 0) return;
        if (ramps % 2 == 1) move_interval = std::max(1, move_interval - 1);
        spawn_interval = std::max(1, spawn_interval - 1);
        ++ramps;
        ramp_timer = kRampInterval;
    }

    void show(Screen screen) const {
        screen.set(Channel::player, x, y);
        for (int row = 0; row < kRows; ++row) {
            const Thing& thing = things[row];
            if (!thing.there) continue;
            screen.set(thing.is_gold ? Channel::gold : Channel::enemy, thing.x, row + 1);
            screen.set_if_on_board(Channel::trail, beside(thing.x, !thing.right), row + 1);
        }
    }

    bool is_sound() const {
        return on_board(x) && y >= 1 && y <= kRows &&
               std::all_of(things, things + kRows,
                           [](const Thing& thing) { return !thing.there || on_board(thing.x); });
    }
};

}  // namespace

Rules asterix() {
    return rules_of<Asterix>("asterix", {"player", "enemy", "trail", "gold"}, {0, 1, 2, 3, 4});
}

}  // namespace replaylab::minatar
