// CartPole (Barto, Sutton & Anderson 1983), equal to Gymnasium's bit for bit: each operation comes in its
// order.
#pragma once

#include <cmath>

namespace replaylab {

struct CartPole {
    double &position, &velocity, &angle, &spin;  // m, m/s, rad, rad/s

    // Moves one time step on. The angle's cosine and sine are the caller's: those of NumPy differ from the C
    // library's in their last bits.
    void step(bool right, double cos, double sin) {
        constexpr double gravity = 9.8, pole_mass = 0.1, total_mass = 1.0 + pole_mass;  // m/s², kg
        constexpr double half_length = 0.5, force = 10.0, time = 0.02;                  // m, N, s
        constexpr double moment = pole_mass * half_length;
        const double push = ((right ? force : -force) + moment * (spin * spin) * sin) / total_mass;
        const double angular =
            (gravity * sin - cos * push) / (half_length * (4.0 / 3.0 - pole_mass * (cos * cos) / total_mass));
        const double linear = push - moment * angular * cos / total_mass;
        position += time * velocity;
        angle += time * spin;
        velocity += time * linear;
        spin += time * angular;
    }

    bool is_outside(double position_limit, double angle_limit) const {
        return std::abs(position) > position_limit || std::abs(angle) > angle_limit;
    }
};

}  // namespace replaylab
