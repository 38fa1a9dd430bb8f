// Breakout: bounce a ball off a paddle to break three rows of bricks.
#include "games/minatar.hpp"

namespace replaylab::minatar {

namespace {

enum Channel { paddle, ball, trail, brick };

struct Breakout {
    int x, y, last_x, last_y;  // the ball, now and a frame before
    int dx, dy;                // its direction, each 1 or −1
    int paddle_x;
    Flag inside_bricks;  // it struck a brick in the frame before, and goes through those after it
    Row bricks[kSide];

    void start(Random& random) {
        const bool from_right = random.below(2) == 1;
        x = last_x = from_right ? kLast : 0;
        y = last_y = 3;
        dx = from_right ? -1 : 1;
        dy = 1;
        paddle_x = 4;
        inside_bricks = false;
        lay_bricks();
    }

    void lay_bricks() {
        for (int row = 1; row <= 3; ++row) bricks[row] = kFullRow;
    }

    Outcome step(Action action, Random&, bool) {
        Outcome outcome;
        paddle_x = moved(paddle_x, action, Action::left, Action::right, 0, kLast);
        last_x = x;
        last_y = y;
        x += dx;
        y = std::min(y + dy, kLast);  // beyond only where an episode has ended
        if (!on_board(x)) {
            x = last_x;
            dx = -dx;
        }
        bool hit = false;
        if (y < 0) {
            y = 0;
            dy = -dy;
        } else if (bricks[y] >> x & 1) {
            hit = true;
            if (!inside_bricks) {
                outcome.reward = 1;
                bricks[y] = static_cast<Row>(bricks[y] & ~(1 << x));
                bounce();
            }
        } else if (y == kLast) {
            outcome.terminated = !meet_paddle();
        }
        inside_bricks = hit;
        return outcome;
    }

    // The ball is back in the row that it came from, and turns.
    void bounce() {
        y = last_y;
        dy = -dy;
    }

    // In the lowest row: returns whether the paddle was where the ball came from or where it went to.
    bool meet_paddle() {
        if (std::all_of(bricks, bricks + kSide, [](Row row) { return row == 0; })) lay_bricks();
        if (last_x == paddle_x) {
            bounce();
        } else if (x == paddle_x) {
            bounce();
            dx = -dx;
        } else {
            return false;
        }
        return true;
    }

    void show(Screen screen) const {
        screen.set(Channel::paddle, paddle_x, kLast);
        screen.set(Channel::ball, x, y);
        screen.set(Channel::trail, last_x, last_y);
        screen.set_rows(Channel::brick, bricks);
    }

    bool is_sound() const {
        return on_board(x) && on_board(y) && on_board(last_x) && on_board(last_y) && on_board(paddle_x) &&
               std::abs(dx) == 1 && std::abs(dy) == 1;
    }
};

}  // namespace

Rules breakout() { return rules_of<Breakout>("breakout", {"paddle", "ball", "trail", "brick"}, {0, 1, 3}); }

}  // namespace replaylab::minatar
