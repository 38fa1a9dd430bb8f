#include "learning/network.hpp"

namespace replaylab {

namespace {

std::vector<Convolution> convolutions(Image image, const std::vector<Filters>& filters) {
    std::vector<Convolution> made;
    for (const Filters& one : filters) {
        made.emplace_back(image, one);
        image = made.back().to();
    }
    return made;
}

}  // namespace

Network::Network(const Image& inputs, const std::vector<Filters>& filters,
                 const std::vector<std::int64_t>& hidden, std::int64_t actions, bool dueling)
    : inputs_(inputs),
      below_(convolutions(inputs, filters)),
      top_(below_.empty() ? inputs.size() : below_.back().to().size(), hidden, actions, dueling) {
    for (const Convolution& one : below_) {
        first_parameter_ += one.parameters();
        first_feature_ += one.from().size();
    }
}

std::vector<Layer> Network::layers() const {
    std::vector<Layer> layers;
    std::int64_t first = 0;
    for (const Convolution& one : below_) {
        layers.push_back(
            {one.seen(), one.to().channels, first, first + one.seen() * one.to().channels, 0, 0, true});
        first += one.parameters();
    }
    for (Layer layer : top_.layers()) {
        layer.weight += first;
        layers.push_back(layer);
    }
    return layers;
}

void Network::forward(const float* parameters, float* activations, std::int64_t rows) const {
    for (const Convolution& one : below_) {
        float* above = activations + one.from().size() * rows;
        one.forward(parameters, activations, above, rows);
        parameters += one.parameters();
        activations = above;
    }
    top_.forward(parameters, activations, rows);
}

void Network::backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                       float* scratch, std::int64_t rows) const {
    std::int64_t parameter = first_parameter_, feature = first_feature_ * rows;
    top_.backward(parameters + parameter, activations + feature, slopes + feature, gradients + parameter,
                  rows, below_.empty() ? nullptr : scratch);
    for (auto one = below_.rbegin(); one != below_.rend(); ++one) {
        const float* above = slopes + feature;
        parameter -= one->parameters();
        feature -= one->from().size() * rows;
        one->backward(parameters + parameter, activations + feature, above, gradients + parameter,
                      feature > 0 ? slopes + feature : nullptr, rows);
    }
}

}  // namespace replaylab
