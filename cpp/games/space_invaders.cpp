// Space Invaders: shoot a cluster of aliens that comes down row by row and shoots back.
#include "games/minatar.hpp"

namespace replaylab::minatar {

namespace {

enum Channel { cannon, alien, alien_left, alien_right, friendly_bullet, enemy_bullet };

constexpr int kShotPause = 5, kAlienShotInterval = 10;
constexpr int kMoveInterval = 12, kLeastMoveInterval = 6;

int count(Row row) {
    int bits = 0;
    for (; row; row = static_cast<Row>(row & (row - 1))) ++bits;
    return bits;
}

struct SpaceInvaders {
    int x;           // the cannon's
    int shot_timer;  // frames until it can shoot again
    int move_interval, move_timer, alien_shot_timer;
    Flag right;  // where the aliens go
    Row aliens[kSide], bullets[kSide], alien_bullets[kSide];

    void start(Random&) {
        x = 5;
        shot_timer = 0;
        move_interval = move_timer = kMoveInterval;
        alien_shot_timer = kAlienShotInterval;
        right = false;
        std::fill_n(aliens, kSide, Row{0});
        std::fill_n(bullets, kSide, Row{0});
        std::fill_n(alien_bullets, kSide, Row{0});
        send_aliens();
    }

    // Six columns of four.
    void send_aliens() { std::fill_n(aliens, 4, Row{0b0011111100}); }

    Outcome step(Action action, Random&, bool ramping) {
        Outcome outcome;
        if (action == Action::fire && shot_timer == 0) {
            bullets[kLast] = static_cast<Row>(bullets[kLast] | 1 << x);
            shot_timer = kShotPause;
        }
        x = moved(x, action, Action::left, Action::right, 0, kLast);
        std::copy(bullets + 1, bullets + kSide, bullets);
        bullets[kLast] = 0;
        move_down(alien_bullets);
        alien_bullets[0] = 0;
        outcome.terminated = hits_cannon(alien_bullets) || hits_cannon(aliens);
        if (move_timer == 0 && move_aliens()) outcome.terminated = true;
        if (alien_shot_timer == 0) {
            alien_shot_timer = kAlienShotInterval;
            shoot_back();
        }
        outcome.reward = meet_bullets();
        if (shot_timer > 0) --shot_timer;
        --move_timer;
        --alien_shot_timer;
        if (number() == 0) {
            if (ramping) move_interval = std::max(kLeastMoveInterval, move_interval - 1);
            send_aliens();
        }
        return outcome;
    }

    bool hits_cannon(const Row* rows) const { return rows[kLast] >> x & 1; }

    int number() const {
        int sum = 0;
        for (Row row : aliens) sum += count(row);
        return sum;
    }

    Row columns() const {
        Row any = 0;
        for (Row row : aliens) any = static_cast<Row>(any | row);
        return any;
    }

    // Sideways, or at a side down and back; returns whether that ends the game.
    bool move_aliens() {
        move_timer = std::min(number(), move_interval);
        bool landed = false;
        if (columns() >> (right ? kLast : 0) & 1) {
            right = !right;
            landed = aliens[kLast] != 0;
            move_down(aliens);
        } else {
            for (Row& row : aliens) row = static_cast<Row>(right ? row << 1 : row >> 1);
        }
        return landed || hits_cannon(aliens);
    }

    // The lowest alien of the column nearest to the cannon shoots; of two as near, the left one.
    void shoot_back() {
        for (int away = 0; away < kSide; ++away)
            for (const int column : {x - away, x + away}) {
                if (!on_board(column)) continue;
                for (int y = kLast; y >= 0; --y)
                    if (aliens[y] >> column & 1) {
                        alien_bullets[y] = static_cast<Row>(alien_bullets[y] | 1 << column);
                        return;
                    }
            }
    }

    int meet_bullets() {
        int shot = 0;
        for (int y = 0; y < kSide; ++y) {
            const Row both = aliens[y] & bullets[y];
            shot += count(both);
            aliens[y] = static_cast<Row>(aliens[y] ^ both);
            bullets[y] = static_cast<Row>(bullets[y] ^ both);
        }
        return shot;
    }

    void show(Screen screen) const {
        screen.set(Channel::cannon, x, kLast);
        screen.set_rows(Channel::alien, aliens);
        screen.set_rows(right ? Channel::alien_right : Channel::alien_left, aliens);
        screen.set_rows(Channel::friendly_bullet, bullets);
        screen.set_rows(Channel::enemy_bullet, alien_bullets);
    }

    bool is_sound() const { return on_board(x); }
};

}  // namespace

Rules space_invaders() {
    return rules_of<SpaceInvaders>(
        "space_invaders", {"cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet"},
        {0, 1, 3, 5});
}

}  // namespace replaylab::minatar
