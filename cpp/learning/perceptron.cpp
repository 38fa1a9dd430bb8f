#include "learning/perceptron.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "learning/kernels.hpp"

namespace replaylab {

namespace {

template <typename Vector>
REPLAYLAB_INLINE float squared_norm(const float* x, std::int64_t count) {
    constexpr std::int64_t lanes = kLanes<Vector>;
    Vector sum[2] = {};
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes)
        for (int half = 0; half < 2; ++half) {
            const Vector v = load<Vector>(x + i + half * lanes);
            sum[half] += v * v;
        }
    float squares = total(sum[0] + sum[1]);
    for (; i < count; ++i) squares += x[i] * x[i];
    return squares;
}

#define REPLAYLAB_KERNELS(NAME, TARGET, VECTOR, OUTPUTS, VECTORS)                                           \
    TARGET void product_##NAME(const Product& p) { product<VECTOR, OUTPUTS, VECTORS>(p); }                  \
    TARGET void outer_##NAME(const Outer& p) { outer<VECTOR, OUTPUTS / 2>(p); }                             \
    TARGET void step_##NAME(const OptimizerStep& step, const float* g, float* m, float* v, float* p,        \
                            std::int64_t count) {                                                           \
        take_step(step, g, m, v, p, count);                                                                 \
    }                                                                                                       \
    TARGET float squared_norm_##NAME(const float* x, std::int64_t n) { return squared_norm<VECTOR>(x, n); } \
    TARGET void pixels_##NAME(const Pixels& p) { pixels<VECTOR>(p); }                                       \
    constexpr Kernels k_##NAME{product_##NAME, outer_##NAME, pixels_##NAME, squared_norm_##NAME, step_##NAME};

REPLAYLAB_KERNELS(portable, , Float4, 4, 2)
#ifdef REPLAYLAB_X86
REPLAYLAB_KERNELS(avx2, __attribute__((target("avx2,fma"))), Float8, 4, 2)
REPLAYLAB_KERNELS(avx512, __attribute__((target("avx512f,avx2,fma"))), Float16, 8, 2)
#endif

struct Choice {
    const char* name;
    bool usable;
    Kernels kernels;
};

// Best first.
const Choice choices[] = {
#ifdef REPLAYLAB_X86
    {"avx512", __builtin_cpu_supports("avx512f") != 0, k_avx512},
    {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), k_avx2},
#endif
    {"portable", true, k_portable}};

// An outer product with whole vectors of inputs: with x turned to (row, input) first there are no lanes to
// add up in the end, which for a thousand inputs and 32 rows takes three times as long as all the rest.
void outer_of_wide(const Outer& p, float* turned) {
    for (std::int64_t first = 0; first < p.inputs; first += kRowBlock)
        for (std::int64_t b = 0; b < p.rows; ++b)
            for (std::int64_t i = first; i < first + kRowBlock; ++i)
                turned[b * p.inputs + i] = p.x[i * p.rows + b];
    kernels.product({p.dy, p.rows, 1, turned, nullptr, nullptr, false, p.outputs, p.rows, p.inputs, p.dw});
    for (std::int64_t o = 0; o < p.outputs; ++o)
        p.db[o] = std::accumulate(p.dy + o * p.rows, p.dy + (o + 1) * p.rows, 0.0f);
}

}  // namespace

Kernels kernels =
    std::find_if(std::begin(choices), std::end(choices), [](const Choice& c) { return c.usable; })->kernels;

std::vector<std::string> usable_kernels() {
    std::vector<std::string> names;
    for (const Choice& choice : choices)
        if (choice.usable) names.emplace_back(choice.name);
    return names;
}

void use_kernels(const std::string& name) {
    for (const Choice& choice : choices)
        if (choice.usable && choice.name == name) kernels = choice.kernels;
}

Perceptron::Perceptron(std::int64_t inputs, const std::vector<std::int64_t>& hidden, std::int64_t actions,
                       bool dueling)
    : features_(inputs), actions_(actions), dueling_(dueling) {
    std::int64_t from = 0, width = inputs;
    for (std::size_t depth = 0; depth < hidden.size(); ++depth) {
        const std::int64_t outputs = hidden[depth] * (dueling && depth + 1 == hidden.size() ? 2 : 1);
        from = add_layer(from, width, features_, outputs, true);
        width = outputs;
    }
    if (dueling) {
        add_layer(from, width / 2, features_, 1, false);
        add_layer(from + width / 2, width / 2, features_, actions, false);
        features_ += actions;  // Q, made of the two
    } else {
        add_layer(from, width, features_, actions, false);
    }
}

std::int64_t Perceptron::add_layer(std::int64_t from, std::int64_t inputs, std::int64_t to,
                                   std::int64_t outputs, bool relu) {
    layers_.push_back({inputs, outputs, parameters_, parameters_ + inputs * outputs, from, to, relu});
    parameters_ += (inputs + 1) * outputs;
    features_ += outputs;
    return to;
}

void Perceptron::forward(const float* parameters, float* activations, std::int64_t rows) const {
    for (const Layer& layer : layers_)
        kernels.product({parameters + layer.weight, layer.inputs, 1, activations + layer.from * rows,
                         parameters + layer.bias, nullptr, layer.relu, layer.outputs, layer.inputs, rows,
                         activations + layer.to * rows});
    if (!dueling_) return;
    float* q = activations + this->q() * rows;
    const float* advantage = q - actions_ * rows;
    const float* value = advantage - rows;
    for (std::int64_t b = 0; b < rows; ++b) {
        float sum = 0.0f;
        for (std::int64_t a = 0; a < actions_; ++a) sum += advantage[a * rows + b];
        const float base = value[b] - sum / static_cast<float>(actions_);
        for (std::int64_t a = 0; a < actions_; ++a) q[a * rows + b] = base + advantage[a * rows + b];
    }
}

void Perceptron::backward(const float* parameters, const float* activations, float* slopes, float* gradients,
                          std::int64_t rows, float* scratch) const {
    if (dueling_) {
        const float* q = slopes + this->q() * rows;
        float* advantage = slopes + (this->q() - actions_) * rows;
        float* value = advantage - rows;
        for (std::int64_t b = 0; b < rows; ++b) {
            value[b] = 0.0f;
            for (std::int64_t a = 0; a < actions_; ++a) value[b] += q[a * rows + b];
            for (std::int64_t a = 0; a < actions_; ++a)
                advantage[a * rows + b] = q[a * rows + b] - value[b] / static_cast<float>(actions_);
        }
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
        const float* x = activations + layer->from * rows;
        const float* dy = slopes + layer->to * rows;
        const Outer outer{dy,
                          x,
                          layer->outputs,
                          layer->inputs,
                          rows,
                          gradients + layer->weight,
                          gradients + layer->bias,
                          layer->inputs};
        if (layer->from == 0 && scratch && layer->inputs % kRowBlock == 0)
            outer_of_wide(outer, scratch);
        else
            kernels.outer(outer);
        if (layer->from > 0 || scratch)  // inputs are relu's outputs, all but the first layer's
            kernels.product({parameters + layer->weight, 1, layer->inputs, dy, nullptr, x, false,
                             layer->inputs, layer->outputs, rows, slopes + layer->from * rows});
    }
}

void clip(float* gradients, std::int64_t count, float most) {
    if (!std::isfinite(most)) return;
    const float scale = most / (std::sqrt(kernels.squared_norm(gradients, count)) + 1e-6f);
    if (scale >= 1.0f) return;
    for (std::int64_t i = 0; i < count; ++i) gradients[i] *= scale;
}

}  // namespace replaylab
