#include "learning/convolution.hpp"

#include <algorithm>

#include "learning/kernels.hpp"
#include "learning/perceptron.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kPlaces = 16;  // whose numbers a sum over places finds in the nearest cache

}  // namespace

Convolution::Convolution(const Image& from, const Filters& filters)
    : from_(from),
      to_{filters.count, (from.height - filters.side) / filters.stride + 1,
          (from.width - filters.side) / filters.stride + 1},
      filters_(filters) {}

// Where, in an image of one row, that begins which the filters see at a place.
std::int64_t Convolution::first_seen(std::int64_t place) const {
    const std::int64_t y = place / to_.width * filters_.stride, x = place % to_.width * filters_.stride;
    return (y * from_.width + x) * from_.channels;
}

void Convolution::forward(const float* parameters, const float* image, float* outputs,
                          std::int64_t rows) const {
    const float* bias = parameters + seen() * filters_.count;
    for (std::int64_t place = 0; place < to_.places(); ++place)
        kernels.product({parameters, seen(), 1, image + first_seen(place) * rows, bias, nullptr, true,
                         filters_.count, run(), rows, outputs + place * filters_.count * rows, filters_.side,
                         from_.width * from_.channels * rows});
}

void Convolution::backward(const float* parameters, const float* image, const float* slopes, float* gradients,
                           float* image_slopes, std::int64_t rows) const {
    const std::int64_t line = from_.width * from_.channels * rows;
    const std::int64_t some = (kPlaces + to_.width - 1) / to_.width;  // lines
    for (std::int64_t y = 0; y < to_.height; y += some)
        for (std::int64_t segment = 0; segment < filters_.side; ++segment)
            kernels.outer({slopes + y * to_.width * filters_.count * rows,
                           image + (y * filters_.stride + segment) * line, filters_.count, run(), rows,
                           gradients + segment * run(),
                           segment == 0 ? gradients + seen() * filters_.count : nullptr, seen(),
                           std::min(some, to_.height - y), to_.width, filters_.stride * line,
                           filters_.stride * from_.channels * rows, y > 0});
    if (!image_slopes) return;
    std::fill(image_slopes, image_slopes + from_.size() * rows, 0.0f);
    const bool overlap = filters_.stride < filters_.side;  // then the gate comes last
    for (std::int64_t place = 0; place < to_.places(); ++place)
        for (std::int64_t segment = 0; segment < filters_.side; ++segment) {
            const std::int64_t at = first_seen(place) * rows + segment * line;
            kernels.product({parameters + segment * run(), 1, seen(), slopes + place * filters_.count * rows,
                             nullptr, overlap ? nullptr : image + at, false, run(), filters_.count, rows,
                             image_slopes + at, 1, 0, overlap});
        }
    if (!overlap) return;
    for (std::int64_t i = 0; i < from_.size() * rows; ++i)
        image_slopes[i] = image[i] > 0.0f ? image_slopes[i] : 0.0f;
}

}  // namespace replaylab
