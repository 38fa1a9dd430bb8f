// Freeway: cross eight lanes of cars.
#include "games/minatar.hpp"

namespace replaylab::minatar {

namespace {

enum Channel { chicken, car, speed1 };  // and so on to speed5

constexpr int kLanes = 8;    // y = 1 to 8
constexpr int kColumn = 4;   // the chicken's
constexpr int kSlowest = 5;  // frames between two moves of a car, at most
constexpr int kPause = 3;    // frames between two moves of the chicken
constexpr int kFrames = 2500;

struct Freeway {
    struct Car {
        std::int8_t x, timer, interval;
        Flag right;
    };

    int y, pause, frames_left;
    Car cars[kLanes];

    void start(Random& random) {
        for (Car& one : cars) one.x = 0;
        draw_speeds(random);
        y = kLast;
        pause = kPause;
        frames_left = kFrames;
    }

    void draw_speeds(Random& random) {
        for (Car& one : cars) one.interval = one.timer = static_cast<std::int8_t>(1 + random.below(kSlowest));
        for (Car& one : cars) one.right = !happens(random, 1.0 / 2);
    }

    Outcome step(Action action, Random& random, bool) {
        Outcome outcome;
        if (pause == 0 && (action == Action::up || action == Action::down)) {
            pause = kPause;
            y = moved(y, action, Action::up, Action::down, 0, kLast);
        }
        if (y == 0) {
            outcome.reward = 1;
            draw_speeds(random);
            y = kLast;
        }
        for (int lane = 0; lane < kLanes; ++lane) {
            Car& one = cars[lane];
            bool hit = one.x == kColumn;
            if (one.timer == 0) {
                one.timer = one.interval;
                one.x = static_cast<std::int8_t>(around(beside(one.x, one.right)));
                hit = hit || one.x == kColumn;
            } else {
                --one.timer;
            }
            if (hit && y == lane + 1) y = kLast;
        }
        if (pause > 0) --pause;
        outcome.terminated = --frames_left < 0;
        return outcome;
    }

    // Cars that leave on one side come in on the other.
    static int around(int x) { return (x + kSide) % kSide; }

    void show(Screen screen) const {
        screen.set(Channel::chicken, kColumn, y);
        for (int lane = 0; lane < kLanes; ++lane) {
            const Car& one = cars[lane];
            screen.set(Channel::car, one.x, lane + 1);
            screen.set(Channel::speed1 + one.interval - 1, around(beside(one.x, !one.right)), lane + 1);
        }
    }

    bool is_sound() const {
        return on_board(y) && std::all_of(cars, cars + kLanes, [](const Car& one) {
                   return on_board(one.x) && one.interval >= 1 && one.interval <= kSlowest;
               });
    }
};

}  // namespace

Rules freeway() {
    return rules_of<Freeway>("freeway", {"chicken", "car", "speed1", "speed2", "speed3", "speed4", "speed5"},
                             {0, 2, 4});
}

}  // namespace replaylab::minatar
