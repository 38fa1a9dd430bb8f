// The two products a dense layer is made of, written once and compiled for each vector width.
//
// A product is summed in tiles of some outputs × some rows that stay in registers. Results may differ between
// processors in the last bits, as fused multiply-add is used where there is one; on one they repeat.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "support/dispatch.hpp"

namespace replaylab {

// y[o, b] = Σᵢ w[o·output_stride + i·input_stride]·x[i, b] + bias[o]
//
// The inputs may lie in several segments, each of `inputs`: those of segment s begin at x + s·jump. Rows are
// whole vectors, or a single one, whose product has an input_stride of 1 and neither gate nor add.
struct Product {
    const float* w;
    std::int64_t output_stride, input_stride;
    const float* x;
    const float* bias;  // null: none
    const float* gate;  // y becomes 0 where this (o, b) is not positive; null: nowhere
    bool relu;          // negative y become 0
    std::int64_t outputs, inputs, rows;
    float* y;
    std::int64_t segments = 1, jump = 0;
    bool add = false;  // to what is in y
};

// dw[o, i] = Σ_b dy[o, b]·x[i, b], and db[o] = Σ_b dy[o, b]
//
// Both may be sums over the places of an image too: there dy lies place by place, and x of the place at
// (line, column) begins at x + line·x_line + column·x_column.
struct Outer {
    const float* dy;
    const float* x;
    std::int64_t outputs, inputs, rows;
    float* dw;
    float* db;               // null: not wanted
    std::int64_t dw_stride;  // from an output's weights to the next one's
    std::int64_t lines = 1, columns = 1, x_line = 0, x_column = 0;
    bool add = false;  // to what is in dw and db
};

// to[place·step + b] = scale·from[b·size + place], for one channel of a batch of images; 0 from `rows` to
// `padded`
struct Pixels {
    const std::uint8_t* from;
    float scale;
    std::int64_t places, size, rows, padded, step;
    float* to;
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
    constexpr std::int64_t lanes = kLanes<Vector>;
    const Vector zero{};
    Vector sum[Outputs][Vectors];
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
        for (int n = 0; n < Vectors; ++n) sum[m][n] = zero + (p.bias ? p.bias[o + m] : 0.0f);
    const float* w = p.w + o * p.output_stride;
    const float* x = p.x + b;
    for (std::int64_t segment = 0; segment < p.segments; ++segment, x += p.jump - p.inputs * p.rows)
        for (std::int64_t i = 0; i < p.inputs; ++i, x += p.rows, w += p.input_stride) {
            Vector column[Vectors];
#pragma GCC unroll 16
            for (int n = 0; n < Vectors; ++n) column[n] = load<Vector>(x + n * lanes);
#pragma GCC unroll 16
            for (int m = 0; m < Outputs; ++m) {
                const float factor = w[m * p.output_stride];
#pragma GCC unroll 16
                for (int n = 0; n < Vectors; ++n) sum[m][n] += factor * column[n];
            }
        }
    // Step by step, with few pointers: a branch for each vector, and its address, take as long as the sums of
    // four inputs.
    const std::int64_t rows = p.rows, first = o * rows + b;
    float* y = p.y + first;
    if (p.add) {
#pragma GCC unroll 16
        for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
            for (int n = 0; n < Vectors; ++n) sum[m][n] += load<Vector>(y + m * rows + n * lanes);
    }
    if (p.relu) {  // NaN stays
#pragma GCC unroll 16
        for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
            for (int n = 0; n < Vectors; ++n) sum[m][n] = sum[m][n] < zero ? zero : sum[m][n];
    }
    if (const float* gate = p.gate ? p.gate + first : nullptr) {
#pragma GCC unroll 16
        for (int m = 0; m < Outputs; ++m, gate += rows)
#pragma GCC unroll 16
            for (int n = 0; n < Vectors; ++n)
                sum[m][n] = load<Vector>(gate + n * lanes) > zero ? sum[m][n] : zero;
    }
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m, y += rows)
#pragma GCC unroll 16
        for (int n = 0; n < Vectors; ++n) store(y + n * lanes, sum[m][n]);
}

template <typename Vector, int Outputs, int Vectors>
REPLAYLAB_INLINE void product_strip(const Product& p, std::int64_t o) {
    constexpr std::int64_t step = Vectors * kLanes<Vector>;
    std::int64_t b = 0;
    for (; b + step <= p.rows; b += step) product_tile<Vector, Outputs, Vectors>(p, o, b);
    for (; b < p.rows; b += kLanes<Vector>) product_tile<Vector, Outputs, 1>(p, o, b);
}

// `Outputs` outputs of a single row: along the inputs, which lie side by side then.
template <typename Vector, int Outputs>
REPLAYLAB_INLINE void product_of_row(const Product& p, std::int64_t o) {
    Vector sum[Outputs] = {};
    Float4 rest[Outputs] = {};
    float last[Outputs] = {};
    for (std::int64_t segment = 0; segment < p.segments; ++segment) {
        const float* x = p.x + segment * p.jump;
        const float* w = p.w + o * p.output_stride + segment * p.inputs;
        std::int64_t i = 0;
        for (; i + kLanes<Vector> <= p.inputs; i += kLanes<Vector>)
#pragma GCC unroll 4
            for (int m = 0; m < Outputs; ++m)
                sum[m] += load<Vector>(w + m * p.output_stride + i) * load<Vector>(x + i);
        for (; i + 4 <= p.inputs; i += 4)
#pragma GCC unroll 4
            for (int m = 0; m < Outputs; ++m)
                rest[m] += load<Float4>(w + m * p.output_stride + i) * load<Float4>(x + i);
        for (; i < p.inputs; ++i)
            for (int m = 0; m < Outputs; ++m) last[m] += w[m * p.output_stride + i] * x[i];
    }
    for (int m = 0; m < Outputs; ++m) {
        const float y = (p.bias ? p.bias[o + m] : 0.0f) + (total(sum[m]) + total(rest[m]) + last[m]);
        p.y[o + m] = p.relu && y < 0.0f ? 0.0f : y;
    }
}

template <typename Vector, int Outputs, int Vectors>
REPLAYLAB_INLINE void product(const Product& p) {
    std::int64_t o = 0;
    if (p.rows == 1) {
        for (; o + 4 <= p.outputs; o += 4) product_of_row<Vector, 4>(p, o);
        for (; o < p.outputs; ++o) product_of_row<Vector, 1>(p, o);
        return;
    }
    for (; o + Outputs <= p.outputs; o += Outputs) product_strip<Vector, Outputs, Vectors>(p, o);
    for (; o + 2 <= p.outputs; o += 2) product_strip<Vector, 2, 2 * Vectors>(p, o);
    for (; o < p.outputs; ++o) product_strip<Vector, 1, 2 * Vectors>(p, o);
}

// `Outputs` × `Inputs` (4 or 1) entries of dw from (o, i) on.
template <typename Vector, int Outputs, int Inputs>
REPLAYLAB_INLINE void outer_tile(const Outer& p, std::int64_t o, std::int64_t i) {
    Vector sum[Outputs][Inputs] = {};
    const float* dy = p.dy + o * p.rows;
    for (std::int64_t line = 0; line < p.lines; ++line) {
        const float* x = p.x + line * p.x_line + i * p.rows;
        for (std::int64_t at = 0; at < p.columns; ++at, x += p.x_column, dy += p.outputs * p.rows)
            for (std::int64_t b = 0; b < p.rows; b += kLanes<Vector>) {
                Vector column[Inputs];
#pragma GCC unroll 16
                for (int n = 0; n < Inputs; ++n) column[n] = load<Vector>(x + n * p.rows + b);
#pragma GCC unroll 16
                for (int m = 0; m < Outputs; ++m) {
                    const Vector slope = load<Vector>(dy + m * p.rows + b);
#pragma GCC unroll 16
                    for (int n = 0; n < Inputs; ++n) sum[m][n] += slope * column[n];
                }
            }
    }
#pragma GCC unroll 16
    for (int m = 0; m < Outputs; ++m)
#pragma GCC unroll 16
        for (int n = 0; n < Inputs; n += 4) {
            float* dw = p.dw + (o + m) * p.dw_stride + i + n;
            if constexpr (Inputs % 4 == 0)
                store(dw, p.add ? load<Float4>(dw) + totals(sum[m] + n) : totals(sum[m] + n));
            else
                *dw = (p.add ? *dw : 0.0f) + total(sum[m][n]);
        }
}

template <typename Vector, int Outputs>
REPLAYLAB_INLINE void outer_strip(const Outer& p, std::int64_t o) {
    std::int64_t i = 0;
    for (; i + 4 <= p.inputs; i += 4) outer_tile<Vector, Outputs, 4>(p, o, i);
    for (; i < p.inputs; ++i) outer_tile<Vector, Outputs, 1>(p, o, i);
}

// `Outputs` (4 or 1) entries of db from `o` on.
template <typename Vector, int Outputs>
REPLAYLAB_INLINE void outer_bias(const Outer& p, std::int64_t o) {
    Vector sum[Outputs] = {};
    const float* dy = p.dy + o * p.rows;
    for (std::int64_t place = 0; place < p.lines * p.columns; ++place, dy += p.outputs * p.rows)
        for (std::int64_t b = 0; b < p.rows; b += kLanes<Vector>)
#pragma GCC unroll 4
            for (int m = 0; m < Outputs; ++m) sum[m] += load<Vector>(dy + m * p.rows + b);
    float* db = p.db + o;
    if constexpr (Outputs == 4)
        store(db, (p.add ? load<Float4>(db) : Float4{}) + totals(sum));
    else
        *db = (p.add ? *db : 0.0f) + total(sum[0]);
}

template <typename Vector, int Outputs>
REPLAYLAB_INLINE void outer(const Outer& p) {
    std::int64_t o = 0;
    for (; o + Outputs <= p.outputs; o += Outputs) outer_strip<Vector, Outputs>(p, o);
    for (; o + 2 <= p.outputs; o += 2) outer_strip<Vector, 2>(p, o);
    for (; o < p.outputs; ++o) outer_strip<Vector, 1>(p, o);
    if (!p.db) return;
    for (o = 0; o + 4 <= p.outputs; o += 4) outer_bias<Vector, 4>(p, o);
    for (; o < p.outputs; ++o) outer_bias<Vector, 1>(p, o);
}

template <typename Vector>
struct Words;  // of 32 bits, as many as a vector has floats
template <>
struct Words<Float4> {
    using type = std::uint32_t __attribute__((vector_size(16)));
};
template <>
struct Words<Float8> {
    using type = std::uint32_t __attribute__((vector_size(32)));
};
template <>
struct Words<Float16> {
    using type = std::uint32_t __attribute__((vector_size(64)));
};

REPLAYLAB_INLINE std::uint32_t word_at(const std::uint8_t* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// Four bytes of each of as many rows as there are lanes. Not by way of memory, whose many small writes a wide
// read would wait for.
template <typename Word, std::size_t... Lane>
REPLAYLAB_INLINE Word words_of(const std::uint8_t* from, std::int64_t size, std::index_sequence<Lane...>) {
    return Word{word_at(from + static_cast<std::int64_t>(Lane) * size)...};
}

// Four places at once: a word of each row holds four, and so a vector of words four vectors of pixels.
template <typename Vector>
REPLAYLAB_INLINE void pixels_tile(const Pixels& p, std::int64_t place, std::int64_t b) {
    using Word = typename Words<Vector>::type;
    const Word words = words_of<Word>(p.from + b * p.size + place, p.size,
                                      std::make_index_sequence<sizeof(Vector) / sizeof(float)>{});
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
        store(p.to + (place + i) * p.step + b,
              __builtin_convertvector(words >> (8 * i) & 255u, Vector) * p.scale);
}

template <typename Vector>
REPLAYLAB_INLINE void pixels(const Pixels& p) {
    const std::int64_t whole_rows = p.rows / kLanes<Vector> * kLanes<Vector>, whole_places = p.places / 4 * 4;
    for (std::int64_t place = 0; place < whole_places; place += 4)
        for (std::int64_t b = 0; b < whole_rows; b += kLanes<Vector>) pixels_tile<Vector>(p, place, b);
    for (std::int64_t place = 0; place < p.places; ++place)
        for (std::int64_t b = place < whole_places ? whole_rows : 0; b < p.padded; ++b)
            p.to[place * p.step + b] =
                b < p.rows ? p.scale * static_cast<float>(p.from[b * p.size + place]) : 0.0f;
}

}  // namespace replaylab
