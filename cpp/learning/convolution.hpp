// A convolution with relu, for one network and a batch of images.
//
// An image lies place by place (line by line), in a place channel by channel, and each channel along the rows
// of the batch. So what a filter sees of an image is a few runs of memory, one for each of its lines, and a
// place of the output is a dense layer of those runs: nothing is copied side by side, and what a place needs
// stays in the nearest cache.
#pragma once

#include <cstdint>

namespace replaylab {

struct Image {
    std::int64_t channels, height, width;

    std::int64_t places() const { return height * width; }
    std::int64_t size() const { return channels * places(); }
};

struct Filters {
    std::int64_t count, side, stride;
};

class Convolution {
  public:
    // Without padding: places that a filter does not see whole are left out.
    Convolution(const Image& from, const Filters& filters);

    const Image& from() const { return from_; }
    const Image& to() const { return to_; }
    std::int64_t seen() const { return filters_.side * run(); }  // by a filter
    std::int64_t parameters() const { return (seen() + 1) * filters_.count; }

    // Weights are (filter, line, column, channel), biases (filter); rows are a multiple of kRowBlock.
    void forward(const float* parameters, const float* image, float* outputs, std::int64_t rows) const;

    // ∂L/∂parameters from ∂L/∂outputs; and ∂L/∂image, unless null, of an image that a relu made.
    void backward(const float* parameters, const float* image, const float* slopes, float* gradients,
                  float* image_slopes, std::int64_t rows) const;

  private:
    std::int64_t run() const { return filters_.side * from_.channels; }  // seen in one line
    std::int64_t first_seen(std::int64_t place) const;

    Image from_, to_;
    Filters filters_;
};

}  // namespace replaylab
