// The two products a dense layer is made of, written once and compiled for each vector width.
//
// A product is summed in tiles of some outputs × some rows that stay in registers. Results may differ between
// processors in the last bits, as fused multiply-add is used where there is one; on one they repeat.
#pragma once

#include <cstdint>
#include <cstring>

#include "support/dispatch.hpp"

namespace replaylab {

// y[o, b] = Σᵢ w[o·output_stride + i·input_stride]·x[i, b] + bias[o]
struct Product {
    const float* w;
    std::int64_t output_stride, input_stride;
    const float* x;
    const float* bias;  // null: none
    const float* gate;  // y becomes 0 where this (o, b) is not positive; null: nowhere
    bool relu;          // negative y become 0
    std::int64_t outputs, inputs, rows;
    float* y;
};

// dw[o, i] = Σ_b dy[o, b]·x[i, b], and db[o] = Σ_b dy[o, b]
struct Outer {
    const float* dy;
    const float* x;
    std::int64_t outputs, inputs, rows;
    float* dw;
    float* db;
};

using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
using Float16 = float __attribute__((vector_size(64)));

template <typename Vector>
constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(float);

template <typename Vector>
REPLAYLAB_INLINE Vector load(const float* x) {
    Vector v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

template <typename Vector>
REPLAYLAB_INLINE void store(float* x, Vector v) {
    std::memcpy(x, &v, sizeof v);
}

// Lanes added up in halves until four are left.
REPLAYLAB_INLINE Float4 fold(Float4 v) { return v; }
REPLAYLAB_INLINE Float4 fold(Float8 v) {
    return Float4{v[0], v[1], v[2], v[3]} + Float4{v[4], v[5], v[6], v[7]};
}
REPLAYLAB_INLINE Float4 fold(Float16 v) {
    return fold(Float8{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]} +
                Float8{v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]});
}

template <typename Vector>
REPLAYLAB_INLINE float total(Vector v) {
    const Float4 sum = fold(v);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

// The totals of four vectors, added as `total` does.
template <typename Vector>
REPLAYLAB_INLINE Float4 totals(const Vector* v) {
    const Float4 a = fold(v[0]), b = fold(v[1]), c = fold(v[2]), d = fold(v[3]);
    const Float4 ab = Float4{a[0], b[0], a[1], b[1]} + Float4{a[2], b[2], a[3], b[3]};
    const Float4 cd = Float4{c[0], d[0], c[1], d[1]} + Float4{c[2], d[2], c[3], d[3]};
    return Float4{ab[0], ab[1], cd[0], cd[1]} + Float4{ab[2], ab[3], cd[2], cd[3]};
}

// `Outputs` outputs × `Vectors` vectors of rows, from output `o` and row `b` on.
template <typename Vector, int Outputs, int Vectors>
REPLAYLAB_INLINE void product_tile(const Product& p, std::int64_t o, std::int64_t b) {
    Vector sum[Outputs][Vectors];
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
        for (int n = 0; n < Vectors; ++n) sum[m][n] = Vector{} + (p.bias ? p.bias[o + m] : 0.0f);
    const float* w = p.w + o * p.output_stride;
    const float* x = p.x + b;
    for (std::int64_t i = 0; i < p.inputs; ++i, x += p.rows, w += p.input_stride) {
        Vector column[Vectors];
#pragma GCC unroll 16
        for (int n = 0; n < Vectors; ++n) column[n] = load<Vector>(x + n * kLanes<Vector>);
#pragma GCC unroll 16
        for (int m = 0; m < Outputs; ++m) {
            const float factor = w[m * p.output_stride];
#pragma GCC unroll 16
            for (int n = 0; n < Vectors; ++n) sum[m][n] += factor * column[n];
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
        for (int n = 0; n < Vectors; ++n) {
            const std::int64_t at = (o + m) * p.rows + b + n * kLanes<Vector>;
            const Vector zero{};
            Vector y = sum[m][n];
            if (p.relu) y = y > zero ? y : zero;
            if (p.gate) y = load<Vector>(p.gate + at) > zero ? y : zero;
            store(p.y + at, y);
        }
}

template <typename Vector, int Outputs, int Vectors>
REPLAYLAB_INLINE void product_strip(const Product& p, std::int64_t o) {
    constexpr std::int64_t step = Vectors * kLanes<Vector>;
    std::int64_t b = 0;
    for (; b + step <= p.rows; b += step) product_tile<Vector, Outputs, Vectors>(p, o, b);
    for (; b < p.rows; b += kLanes<Vector>) product_tile<Vector, Outputs, 1>(p, o, b);
}

template <typename Vector, int Outputs, int Vectors>
REPLAYLAB_INLINE void product(const Product& p) {
    std::int64_t o = 0;
    for (; o + Outputs <= p.outputs; o += Outputs) product_strip<Vector, Outputs, Vectors>(p, o);
    for (; o < p.outputs; ++o) product_strip<Vector, 1, 2 * Vectors>(p, o);
}

// `Outputs` × `Inputs` (4 or 1) entries of dw from (o, i) on.
template <typename Vector, int Outputs, int Inputs>
REPLAYLAB_INLINE void outer_tile(const Outer& p, std::int64_t o, std::int64_t i) {
    Vector sum[Outputs][Inputs] = {};
    for (std::int64_t b = 0; b < p.rows; b += kLanes<Vector>) {
        Vector x[Inputs];
#pragma GCC unroll 16
        for (int n = 0; n < Inputs; ++n) x[n] = load<Vector>(p.x + (i + n) * p.rows + b);
#pragma GCC unroll 16
        for (int m = 0; m < Outputs; ++m) {
            const Vector dy = load<Vector>(p.dy + (o + m) * p.rows + b);
#pragma GCC unroll 16
            for (int n = 0; n < Inputs; ++n) sum[m][n] += dy * x[n];
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
        for (int n = 0; n < Inputs; n += 4) {
            float* dw = p.dw + (o + m) * p.inputs + i + n;
            if constexpr (Inputs % 4 == 0)
                store(dw, totals(sum[m] + n));
            else
                *dw = total(sum[m][n]);
        }
}

template <typename Vector, int Outputs>
REPLAYLAB_INLINE void outer_strip(const Outer& p, std::int64_t o) {
    std::int64_t i = 0;
    for (; i + 4 <= p.inputs; i += 4) outer_tile<Vector, Outputs, 4>(p, o, i);
    for (; i < p.inputs; ++i) outer_tile<Vector, Outputs, 1>(p, o, i);
    for (int m = 0; m < Outputs; ++m) {
        Vector sum{};
        for (std::int64_t b = 0; b < p.rows; b += kLanes<Vector>)
            sum += load<Vector>(p.dy + (o + m) * p.rows + b);
        p.db[o + m] = total(sum);
    }
}

template <typename Vector, int Outputs>
REPLAYLAB_INLINE void outer(const Outer& p) {
    std::int64_t o = 0;
    for (; o + Outputs <= p.outputs; o += Outputs) outer_strip<Vector, Outputs>(p, o);
    for (; o < p.outputs; ++o) outer_strip<Vector, 1>(p, o);
}

}  // namespace replaylab
