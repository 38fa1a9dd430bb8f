// Seaquest: a submarine that shoots fish and submarines, and brings divers to the surface before its air is
// spent.
#include "games/minatar.hpp"

namespace replaylab::minatar {

namespace {

enum Channel {
    sub_front,
    sub_back,
    friendly_bullet,
    trail,
    enemy_bullet,
    enemy_fish,
    enemy_sub,
    oxygen_gauge,
    diver_gauge,
    diver
};

constexpr int kOxygen = 200, kDivers = 6;
constexpr int kShotPause = 5, kEnemyShotInterval = 10, kDiverMoveInterval = 5;
constexpr int kEnemyInterval = 20, kDiverInterval = 30;
constexpr int kMoveInterval = 5, kLeastMoveInterval = 2;

// What moves sideways through the water. Fields that a kind does not need stay 0.
struct Swimmer {
    std::int8_t x, y;
    Flag right;
    std::int8_t move_timer, shot_timer;

    bool is_at(int at_x, int at_y) const { return x == at_x && y == at_y; }
    bool is_at(const Swimmer& other) const { return is_at(other.x, other.y); }
    void swim() { x = static_cast<std::int8_t>(beside(x, right)); }
    bool operator==(const Swimmer& other) const {
        return is_at(other) && right == other.right && move_timer == other.move_timer &&
               shot_timer == other.shot_timer;
    }
};

// At most one enemy comes in a frame and is gone after 60, at the slowest; a bullet flies for 10.
constexpr int kMost = 80;

// Swimmers in the order in which they came.
struct Shoal {
    int size;
    Swimmer all[kMost];

    void add(const Swimmer& one) {
        if (size < kMost) all[size++] = one;
    }
    void erase(int i) {
        std::copy(all + i + 1, all + size, all + i);
        --size;
    }
    // The first where the other one is, or −1.
    int find_at(const Swimmer& other) const {
        for (int i = 0; i < size; ++i)
            if (all[i].is_at(other)) return i;
        return -1;
    }
    // Removes what equals number i, where the package looks for it: from the first on. What was number i is
    // then number i − 1, unless it was itself the first; returns whether it was.
    bool remove_equal(int i) {
        const int first = static_cast<int>(std::find(all, all + i, all[i]) - all);
        erase(first);
        return first == i;
    }
};

struct Seaquest {
    int x, y;
    Flag right;
    int oxygen, divers_on_board, shot_timer;
    Flag at_surface;
    int enemy_interval, enemy_timer, diver_timer, move_interval, ramps;
    Shoal bullets, enemy_bullets, fish, subs, divers;

    void start(Random&) {
        x = 5;
        y = 0;
        right = false;
        oxygen = kOxygen;
        divers_on_board = shot_timer = ramps = 0;
        at_surface = true;
        enemy_interval = enemy_timer = kEnemyInterval;
        diver_timer = kDiverInterval;
        move_interval = kMoveInterval;
        for (Shoal* shoal : {&bullets, &enemy_bullets, &fish, &subs, &divers}) shoal->size = 0;
    }

    Outcome step(Action action, Random& random, bool ramping) {
        Outcome outcome;
        if (enemy_timer == 0) {
            spawn_enemy(random);
            enemy_timer = enemy_interval;
        }
        if (diver_timer == 0) {
            spawn_diver(random);
            diver_timer = kDiverInterval;
        }
        act(action);
        move_bullets(outcome);
        move_divers();
        move_enemies(subs, outcome, true);
        move_enemy_bullets(outcome);
        move_enemies(fish, outcome, false);
        for (int* timer : {&enemy_timer, &diver_timer, &shot_timer})
            if (*timer > 0) --*timer;
        breathe(outcome, ramping);
        return outcome;
    }

    Swimmer newcomer(bool from_left, Random& random, int move_timer) const {
        const auto row = static_cast<std::int8_t>(1 + random.below(8));
        return {static_cast<std::int8_t>(from_left ? 0 : kLast), row, from_left,
                static_cast<std::int8_t>(move_timer), 0};
    }

    // None comes into a row in which another one goes the other way.
    void spawn_enemy(Random& random) {
        const bool from_left = happens(random, 1.0 / 2), is_sub = happens(random, 1.0 / 3);
        Swimmer enemy = newcomer(from_left, random, move_interval);
        for (const Shoal* shoal : {&subs, &fish})
            for (int i = 0; i < shoal->size; ++i)
                if (shoal->all[i].y == enemy.y && shoal->all[i].right != enemy.right) return;
        if (is_sub) enemy.shot_timer = kEnemyShotInterval;
        (is_sub ? subs : fish).add(enemy);
    }

    void spawn_diver(Random& random) {
        const bool from_left = happens(random, 1.0 / 2);
        divers.add(newcomer(from_left, random, kDiverMoveInterval));
    }

    void act(Action action) {
        if (action == Action::fire && shot_timer == 0) {
            bullets.add({static_cast<std::int8_t>(x), static_cast<std::int8_t>(y), right, 0, 0});
            shot_timer = kShotPause;
        }
        x = moved(x, action, Action::left, Action::right, 0, kLast);
        y = moved(y, action, Action::up, Action::down, 0, kLast - 1);
        if (action == Action::left || action == Action::right) right = action == Action::right;
    }

    bool is_hit(const Swimmer& one) const { return one.is_at(x, y); }

    void move_bullets(Outcome& outcome) {
        for (int i = bullets.size - 1; i >= 0; --i) {
            bullets.all[i].swim();
            if (on_board(bullets.all[i].x)) {
                Shoal& shoal = fish.find_at(bullets.all[i]) >= 0 ? fish : subs;
                const int target = shoal.find_at(bullets.all[i]);
                if (target < 0) continue;
                shoal.erase(target);
                ++outcome.reward;
            }
            bullets.remove_equal(i);
        }
    }

    void move_divers() {
        for (int i = divers.size - 1; i >= 0; --i) {
            Swimmer& one = divers.all[i];
            bool leaves = take_on_board(one);
            if (!leaves && one.move_timer-- == 0) {
                one.move_timer = kDiverMoveInterval;
                one.swim();
                leaves = !on_board(one.x) || take_on_board(one);
            }
            if (leaves) divers.remove_equal(i);
        }
    }

    bool take_on_board(const Swimmer& one) {
        if (!is_hit(one) || divers_on_board >= kDivers) return false;
        ++divers_on_board;
        return true;
    }

    // Fish, or submarines, which shoot as well, even in the frame in which they leave or are shot.
    void move_enemies(Shoal& shoal, Outcome& outcome, bool shoot) {
        for (int i = shoal.size - 1; i >= 0; --i) {
            Swimmer gone, *one = &shoal.all[i];
            outcome.terminated |= is_hit(*one);
            if (one->move_timer-- == 0) {
                one->move_timer = static_cast<std::int8_t>(move_interval);
                one->swim();
                if (leaves(*one, outcome)) {
                    gone = *one;
                    one = shoal.remove_equal(i) ? &gone : &shoal.all[i - 1];
                }
            }
            if (shoot && one->shot_timer-- == 0) {
                one->shot_timer = kEnemyShotInterval;
                enemy_bullets.add({one->x, one->y, one->right, 0, 0});
            }
        }
    }

    // Whether an enemy that has moved is out of the water, or ran into a bullet.
    bool leaves(const Swimmer& one, Outcome& outcome) {
        if (!on_board(one.x)) return true;
        if (is_hit(one)) {
            outcome.terminated = true;
            return false;
        }
        const int bullet = bullets.find_at(one);
        if (bullet < 0) return false;
        bullets.erase(bullet);
        ++outcome.reward;
        return true;
    }

    void move_enemy_bullets(Outcome& outcome) {
        for (int i = enemy_bullets.size - 1; i >= 0; --i) {
            Swimmer& bullet = enemy_bullets.all[i];
            outcome.terminated |= is_hit(bullet);
            bullet.swim();
            outcome.terminated |= is_hit(bullet);
            if (!on_board(bullet.x)) enemy_bullets.remove_equal(i);
        }
    }

    // Air is spent below the surface. Without a diver coming up ends the episode.
    void breathe(Outcome& outcome, bool ramping) {
        outcome.terminated |= oxygen <= 0;
        if (y > 0) {
            --oxygen;
            at_surface = false;
        } else if (!at_surface) {
            if (divers_on_board == 0)
                outcome.terminated = true;
            else
                outcome.reward += surface(ramping);
        }
    }

    // New air for one diver. All six earn what is left in the gauge; then one more than those on board goes.
    int surface(bool ramping) {
        at_surface = true;
        int reward = 0;
        if (divers_on_board == kDivers) {
            divers_on_board = 0;
            reward = gauge();
        }
        oxygen = kOxygen;
        --divers_on_board;
        if (ramping && (enemy_interval > 1 || move_interval > kLeastMoveInterval)) {
            if (ramps % 2 == 1) move_interval = std::max(kLeastMoveInterval, move_interval - 1);
            enemy_interval = std::max(1, enemy_interval - 1);
            ++ramps;
        }
        return reward;
    }

    int gauge() const { return std::max(0, oxygen) * kSide / kOxygen; }

    void show(Screen screen) const {
        screen.set(Channel::sub_front, x, y);
        screen.set_if_on_board(Channel::sub_back, beside(x, !right), y);
        for (int i = 0; i < gauge(); ++i) screen.set(Channel::oxygen_gauge, i, kLast);
        for (int i = 0; i < divers_on_board; ++i) screen.set(Channel::diver_gauge, kLast - 1 - i, kLast);
        show_all(screen, bullets, Channel::friendly_bullet, false);
        show_all(screen, enemy_bullets, Channel::enemy_bullet, false);
        show_all(screen, fish, Channel::enemy_fish, true);
        show_all(screen, subs, Channel::enemy_sub, true);
        show_all(screen, divers, Channel::diver, true);
    }

    static void show_all(Screen screen, const Shoal& shoal, int channel, bool with_trail) {
        for (int i = 0; i < shoal.size; ++i) {
            const Swimmer& one = shoal.all[i];
            screen.set(channel, one.x, one.y);
            if (with_trail) screen.set_if_on_board(Channel::trail, beside(one.x, !one.right), one.y);
        }
    }

    static bool is_sound(const Shoal& shoal) {
        return shoal.size >= 0 && shoal.size <= kMost &&
               std::all_of(shoal.all, shoal.all + shoal.size,
                           [](const Swimmer& one) { return on_board(one.x) && on_board(one.y); });
    }

    bool is_sound() const {
        return on_board(x) && y >= 0 && y < kLast && oxygen <= kOxygen && divers_on_board <= kDivers &&
               is_sound(bullets) && is_sound(enemy_bullets) && is_sound(fish) && is_sound(subs) &&
               is_sound(divers);
    }
};

}  // namespace

Rules seaquest() {
    return rules_of<Seaquest>("seaquest",
                              {"sub_front", "sub_back", "friendly_bullet", "trail", "enemy_bullet",
                               "enemy_fish", "enemy_sub", "oxygen_gauge", "diver_gauge", "diver"},
                              {0, 1, 2, 3, 4, 5});
}

}  // namespace replaylab::minatar
