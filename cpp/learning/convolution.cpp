#include "learning/convolution.hpp"

#include <algorithm>

#include "learning/kernels.hpp"

namespace replaylab {

Convolution::Convolution(const Image& image, std::int64_t filters) : image_(image), filters_(filters) {}

void Convolution::forward(const float* parameters, const float* images, float* columns, float* outputs,
                          std::int64_t rows) const {
    // Column (channel, dy, dx) holds, place by place, the pixel that lies (dy, dx) from the place. Along a
    // line of an image those pixels lie side by side, and each for all rows of the batch: so one copy moves a
    // whole line.
    const std::int64_t width = image_.width, run = (width - kFilterSide + 1) * rows;
    float* to = columns;
    for (std::int64_t channel = 0; channel < image_.channels; ++channel)
        for (std::int64_t dy = 0; dy < kFilterSide; ++dy)
            for (std::int64_t dx = 0; dx < kFilterSide; ++dx)
                for (std::int64_t y = dy; y < dy + image_.height - kFilterSide + 1; ++y, to += run) {
                    const float* from = images + ((channel * image_.height + y) * width + dx) * rows;
                    std::copy(from, from + run, to);
                }
    dense({parameters, seen(), 1, columns, parameters + seen() * filters_, nullptr, true, filters_, seen(),
           places() * rows, outputs});
}

void Convolution::backward(const float* columns, const float* slopes, float* gradients,
                           std::int64_t rows) const {
    dense_gradient(
        {slopes, columns, filters_, seen(), places() * rows, gradients, gradients + seen() * filters_});
}

Network::Network(const Convolution& below, const Perceptron& top)
    : below_(below),
      top_(top),
      first_parameter_(below.parameters()),
      first_feature_(below.inputs() + std::max(below.seen(), below.filters()) * below.places()) {}

std::vector<Layer> Network::layers() const {
    std::vector<Layer> layers = top_.layers();
    for (Layer& layer : layers) layer.weight += first_parameter_;
    if (below_) layers.insert(layers.begin(), Layer{below_->seen(), below_->filters(), 0, 0, 0, 0, true});
    return layers;
}

void Network::forward(const float* parameters, float* activations, std::int64_t rows) const {
    float* above = activations + first_feature_ * rows;
    if (below_) below_->forward(parameters, activations, activations + below_->inputs() * rows, above, rows);
    top_.forward(parameters + first_parameter_, above, rows);
}

void Network::backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                       std::int64_t rows) const {
    const std::int64_t above = first_feature_ * rows;
    top_.backward(parameters + first_parameter_, activations + above, slopes + above,
                  gradients + first_parameter_, rows, below_ ? slopes : nullptr);
    if (below_) below_->backward(activations + below_->inputs() * rows, slopes + above, gradients, rows);
}

}  // namespace replaylab
