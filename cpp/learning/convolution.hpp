// A convolution of 3 × 3 with stride 1 below a perceptron: the network of MinAtar's paper (Young & Tian
// 2019).
//
// In the layout of the perceptron (feature by feature, along the rows of a batch) a convolution is a dense
// layer whose rows are all places of all images: what the filters see of each is copied side by side once,
// and the kernels of the dense layers do the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "learning/perceptron.hpp"

namespace replaylab {

constexpr std::int64_t kFilterSide = 3;

struct Image {
    std::int64_t channels, height, width;
};

class Convolution {
  public:
    Convolution(const Image& image, std::int64_t filters);

    std::int64_t inputs() const { return image_.channels * image_.height * image_.width; }
    std::int64_t seen() const { return image_.channels * kFilterSide * kFilterSide; }  // by a filter
    std::int64_t filters() const { return filters_; }
    std::int64_t places() const {
        return (image_.height - kFilterSide + 1) * (image_.width - kFilterSide + 1);
    }
    std::int64_t parameters() const { return (seen() + 1) * filters_; }

    // With relu. `images` are features (channel, y, x), `columns` (seen, place), `outputs` (filter, place).
    void forward(const float* parameters, const float* images, float* columns, float* outputs,
                 std::int64_t rows) const;

    // ∂L/∂parameters from ∂L/∂outputs, and the columns that `forward` wrote.
    void backward(const float* columns, const float* slopes, float* gradients, std::int64_t rows) const;

  private:
    Image image_;
    std::int64_t filters_;
};

// A perceptron, or one above a convolution. Activations are images, columns, the convolution's outputs, and
// the rest of the perceptron's; of the slopes what lies below the outputs is scratch.
class Network {
  public:
    explicit Network(const Perceptron& top) : top_(top) {}
    Network(const Convolution& below, const Perceptron& top);

    // Where each layer's weights begin, and their outputs and inputs.
    std::vector<Layer> layers() const;
    std::int64_t parameters() const { return first_parameter_ + top_.parameters(); }
    std::int64_t features() const { return first_feature_ + top_.features(); }
    std::int64_t actions() const { return top_.actions(); }
    std::int64_t q() const { return first_feature_ + top_.q(); }

    // As the perceptron's.
    void forward(const float* parameters, float* activations, std::int64_t rows) const;
    void backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                  std::int64_t rows) const;

  private:
    std::optional<Convolution> below_;
    Perceptron top_;
    std::int64_t first_parameter_ = 0, first_feature_ = 0;  // of the perceptron
};

}  // namespace replaylab
