// A multilayer perceptron's outputs and gradients, for one network and a batch of rows.
//
// Values lie feature by feature: activation (feature, row), rows padded to a multiple of kRowBlock. So every
// product of every layer, forwards and backwards, runs along the rows, whatever the layer's width, and a
// layer can read or write a slice of features.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learning/optimizer.hpp"

namespace replaylab {

constexpr std::int64_t kRowBlock = 16;

// y = relu(W x + b), or without the relu; W is (outputs, inputs).
struct Layer {
    std::int64_t inputs, outputs;
    std::int64_t weight, bias;  // where they begin among the parameters
    std::int64_t from, to;      // the first features read and written
    bool relu;
};

// What is computed in vectors of the processor's; see kernels.hpp.
struct Product;
struct Outer;
struct Pixels;
struct Kernels {
    void (*product)(const Product&);
    void (*outer)(const Outer&);
    void (*pixels)(const Pixels&);
    float (*squared_norm)(const float*, std::int64_t);
    // One step of an optimizer on `count` parameters.
    void (*step)(const OptimizerStep& step, const float* gradients, float* mean, float* square,
                 float* parameters, std::int64_t count);
};
extern Kernels kernels;

// Those that this processor can run, best first; the best are used unless a test asks for others.
std::vector<std::string> usable_kernels();
void use_kernels(const std::string& name);

class Perceptron {
  public:
    // Hidden layers with relu, then one value an action. With `dueling` the last hidden layer is two of its
    // width, one below the state's value V, one below the advantages A, and Q = V + A − mean A.
    Perceptron(std::int64_t inputs, const std::vector<std::int64_t>& hidden, std::int64_t actions,
               bool dueling);

    const std::vector<Layer>& layers() const { return layers_; }
    std::int64_t parameters() const { return parameters_; }
    std::int64_t features() const { return features_; }  // rows of an activation or slope array
    std::int64_t actions() const { return actions_; }
    std::int64_t q() const { return features_ - actions_; }  // the first feature of Q

    // Reads features 0 to inputs − 1 of `activations`, writes all others.
    void forward(const float* parameters, float* activations, std::int64_t rows) const;

    // For the latest `forward`: reads ∂L/∂Q from `slopes`, writes the rest of it, and ∂L/∂parameters.
    // Padding rows of ∂L/∂Q must be zero. Given scratch for the inputs, (inputs,
    // rows), also writes ∂L/∂inputs, which a relu must have made.
    void backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                  std::int64_t rows, float* scratch = nullptr) const;

  private:
    std::int64_t add_layer(std::int64_t from, std::int64_t inputs, std::int64_t to, std::int64_t outputs,
                           bool relu);

    std::vector<Layer> layers_;
    std::int64_t parameters_ = 0, features_ = 0, actions_;
    bool dueling_;
};

// Scales the gradients to a Euclidean norm of at most `most`.
void clip(float* gradients, std::int64_t count, float most);

}  // namespace replaylab
