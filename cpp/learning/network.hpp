// The network of a deep Q-learner: a perceptron, with or without convolutions below.
//
// Activations are the inputs, what each convolution makes of them, and the rest of the perceptron's; slopes
// lie alike, those of the inputs unused.
#pragma once

#include <cstdint>
#include <vector>

#include "learning/convolution.hpp"
#include "learning/perceptron.hpp"

namespace replaylab {

class Network {
  public:
    // Inputs that are numbers in a row are an image of one place.
    Network(const Image& inputs, const std::vector<Filters>& filters, const std::vector<std::int64_t>& hidden,
            std::int64_t actions, bool dueling);

    const Image& inputs() const { return inputs_; }

    // Where each layer's weights begin, and their outputs and inputs.
    std::vector<Layer> layers() const;
    std::int64_t parameters() const { return first_parameter_ + top_.parameters(); }
    std::int64_t features() const { return first_feature_ + top_.features(); }
    std::int64_t actions() const { return top_.actions(); }
    std::int64_t q() const { return first_feature_ + top_.q(); }
    std::int64_t scratch() const { return below_.empty() ? 0 : below_.back().to().size(); }  // for a row

    // As the perceptron's; `backward` wants scratch.
    void forward(const float* parameters, float* activations, std::int64_t rows) const;
    void backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                  float* scratch, std::int64_t rows) const;

  private:
    Image inputs_;
    std::vector<Convolution> below_;
    Perceptron top_;
    std::int64_t first_parameter_ = 0, first_feature_ = 0;  // of the perceptron
};

}  // namespace replaylab
