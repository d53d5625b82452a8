// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/attention.h"

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kBlock = 128;     // rows of scores at a time: they stay in the L2 cache
constexpr std::int64_t kAlignment = 64;  // bytes
// Padding after a row of scores: rows a power of two apart would share sets of the L1 cache.
constexpr std::int64_t kGap = 32;
constexpr std::int64_t kEntry = 32;  // positions: of packed operands a product reads whole squares
constexpr float kLog2E = 1.4426950408889634F;

using Triangle = ProductShape::Triangle;

// Elements between rows of scores.
std::int64_t score_stride(std::int64_t columns) { return round_up(columns, kGap) + kGap; }

// One of a head's tensors, (sequence, head_width), as a right operand: transposed or as stored.
ProductShape across_shape(const AttentionShape& s, std::int64_t stride) {
  return {.n = s.sequence,
          .k = s.head_width,
          .b = MatrixPlacement::transposed,
          .in = s.dtype,
          .ldb = stride};
}
ProductShape down_shape(const AttentionShape& s, std::int64_t stride) {
  return {.n = s.head_width, .k = s.sequence, .in = s.dtype, .ldb = stride};
}

// The keys that some query of a block of rows sees, or the queries that see some key of it, and no
// more than it takes to begin and end at multiples of kEntry.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
};
Range keys_of(const AttentionShape& s, std::int64_t first) {
  const std::int64_t begin = std::max<std::int64_t>(first + 1 - s.seen(), 0);
  return {begin / kEntry * kEntry, std::min(first + kBlock, s.sequence)};
}
Range queries_of(const AttentionShape& s, std::int64_t first) {
  const std::int64_t last = std::min(first + kBlock, s.sequence) - 1;
  return {first, std::min(round_up(last + s.seen(), kEntry), s.sequence)};
}
// The most of either.
std::int64_t widest(const AttentionShape& s) {
  return std::min(s.seen() + kBlock + kEntry, s.sequence);
}

// One thread's scratch.
struct Workplace {
  float *scores, *dprobabilities;       // (kBlock, score_stride(widest))
  std::byte *probabilities, *dscores;   // the same in the compute dtype; in fp32 the same memory
  float* result;                        // (kBlock, head_width)
  float* dq;                            // (sequence, head_width)
  float *dk, *dv;                       // the same; only if heads share keys and values
  float *log2_sums, *deltas, *inverse;  // (sequence), (sequence), (kBlock)
  std::byte *across[2], *down[2];       // packed: k and v forward; q and dout backward
  PackedRight keys, values;             // of the query heads that read one key head
  std::byte* products;
};

// Places a Workplace at `base`; returns the bytes before Workplace::products.
std::int64_t lay_out(const AttentionShape& s, std::byte* base, Workplace& place) {
  std::int64_t at = 0;
  const auto take = [&](std::int64_t bytes) {
    std::byte* here = base == nullptr ? nullptr : base + at;
    at += round_up(bytes, kAlignment);
    return here;
  };
  const auto floats = [&](std::int64_t count) { return reinterpret_cast<float*>(take(4 * count)); };
  const std::int64_t block = std::min(kBlock, s.sequence);
  const std::int64_t element = size_of(s.dtype);
  place.scores = floats(block * score_stride(widest(s)));
  place.dprobabilities = floats(block * score_stride(widest(s)));
  if (s.dtype == DType::fp32) {
    place.probabilities = reinterpret_cast<std::byte*>(place.scores);
    place.dscores = reinterpret_cast<std::byte*>(place.dprobabilities);
  } else {
    place.probabilities = take(block * score_stride(widest(s)) * element);
    place.dscores = take(block * score_stride(widest(s)) * element);
  }
  place.result = floats(block * s.head_width);
  place.dq = floats(s.sequence * s.head_width);
  const std::int64_t shared = s.key_heads() == s.heads ? 0 : s.sequence * s.head_width;
  place.dk = floats(shared);
  place.dv = floats(shared);
  place.log2_sums = floats(s.sequence);
  place.deltas = floats(s.sequence);
  place.inverse = floats(block);
  for (std::byte*& each : place.across) each = take(packed_right_bytes(across_shape(s, 0)));
  for (std::byte*& each : place.down) each = take(packed_right_bytes(down_shape(s, 0)));
  place.products = take(0);
  return at;
}

// Elements between the rows of one head's q, k or v, and of its out.
std::int64_t qkv_stride(const AttentionShape& s) { return s.qkv_width(); }
std::int64_t out_stride(const AttentionShape& s) { return s.heads * s.head_width; }

// (rows, head_width) times the packed transpose of (columns, head_width): q by k (the lower
// triangle matters), k by q and v by dout (the upper one).
ProductShape scores_shape(const AttentionShape& s, std::int64_t rows, std::int64_t columns,
                          Triangle triangle) {
  return {.m = rows,
          .n = columns,
          .k = s.head_width,
          .in = s.dtype,
          .triangle = triangle,
          .lda = qkv_stride(s),
          .ldb = s.head_width,
          .ldc = score_stride(columns)};
}

// (rows, inner) times packed (inner, head_width), in fp32.
ProductShape mix_shape(const AttentionShape& s, std::int64_t rows, std::int64_t inner) {
  return {.m = rows,
          .n = s.head_width,
          .k = inner,
          .in = s.dtype,
          .triangle = Triangle::a_lower,
          .lda = score_stride(inner),
          .ldb = s.sequence};
}

// The same, written directly to dqkv; if heads share keys and values, added in fp32 to the sums of
// the group's earlier heads.
ProductShape gradient_shape(const AttentionShape& s, std::int64_t rows, std::int64_t inner) {
  ProductShape shape = mix_shape(s, rows, inner);
  shape.triangle = Triangle::a_upper;
  if (s.key_heads() != s.heads) {
    shape.write = Write::add;
  } else {
    shape.out = s.dtype;
    shape.ldc = qkv_stride(s);
  }
  return shape;
}

// dq (queries, head_width) += the transpose of (rows, queries) times (rows, head_width).
ProductShape dq_shape(const AttentionShape& s, std::int64_t rows, std::int64_t queries) {
  return {.m = queries,
          .n = s.head_width,
          .k = rows,
          .a = MatrixPlacement::transposed,
          .in = s.dtype,
          .write = Write::add,
          .triangle = Triangle::a_lower,
          .lda = score_stride(queries),
          .ldb = qkv_stride(s)};
}

// One query head of one sequence, and the key head it reads, inside the (batch * sequence,
// qkv_width) and (batch * sequence, C) operands.
struct Head {
  const AttentionShape& shape;
  std::int64_t sequence_index;
  std::int64_t head;

  std::int64_t width() const { return shape.heads * shape.head_width; }
  std::int64_t queries_per_kv() const { return shape.heads / shape.key_heads(); }
  // The heads of a group run one after another on one thread.
  bool opens_group() const { return head % queries_per_kv() == 0; }
  bool closes_group() const { return head % queries_per_kv() == queries_per_kv() - 1; }
  // part: 0 q, 1 k, 2 v
  RowBlock of_qkv(const View& view, std::int64_t part, std::int64_t row) const {
    const std::int64_t before =
        part == 0 ? head : shape.heads + (part - 1) * shape.key_heads() + head / queries_per_kv();
    const std::int64_t at = (sequence_index * shape.sequence + row) * shape.qkv_width();
    return block(view, at + before * shape.head_width, shape.qkv_width());
  }
  RowBlock of_out(const View& view, std::int64_t row) const {
    const std::int64_t at = (sequence_index * shape.sequence + row) * width();
    return block(view, at + head * shape.head_width, width());
  }
  float* of_log_sums(const View& view) const {
    return static_cast<float*>(view.data()) +
           (sequence_index * shape.heads + head) * shape.sequence;
  }

 private:
  RowBlock block(const View& view, std::int64_t element, std::int64_t stride) const {
    return {static_cast<std::byte*>(view.data()) + element * size_of(shape.dtype), stride,
            shape.dtype};
  }
};

// The first head of a group packs keys and values, the others reuse them.
void pack_keys(const Head& head, const View& qkv, Workplace& place) {
  if (!head.opens_group()) return;
  const AttentionShape& s = head.shape;
  place.keys =
      pack_right(across_shape(s, qkv_stride(s)), head.of_qkv(qkv, 1, 0).data, place.across[0]);
  place.values =
      pack_right(down_shape(s, qkv_stride(s)), head.of_qkv(qkv, 2, 0).data, place.down[0]);
}

void forward_head(const Head& head, const Attention::Operands& o, Products& products,
                  Workplace& place) {
  const AttentionShape& s = head.shape;
  pack_keys(head, o.qkv, place);
  for (std::int64_t first = 0; first < s.sequence; first += kBlock) {
    const Range seen = keys_of(s, first);
    const std::int64_t rows = seen.end - first;
    const std::int64_t keys = seen.count();
    products.get(scores_shape(s, rows, keys, Triangle::c_lower), Right::packed)
        .run({.a = head.of_qkv(o.qkv, 0, first).data,
              .b = place.keys.from(0, seen.begin),
              .c = place.scores,
              .scratch = place.products});
    softmax_block({.first = first - seen.begin,
                   .rows = rows,
                   .keys = keys,
                   .window = s.seen(),
                   .stride = score_stride(keys),
                   .scale = s.score_scale(),
                   .scores = place.scores,
                   .probabilities = place.probabilities,
                   .dtype = s.dtype,
                   .logsumexp = head.of_log_sums(o.logsumexp) + first,
                   .inverse_sums = place.inverse});
    products.get(mix_shape(s, rows, keys), Right::packed)
        .run({.a = place.probabilities,
              .b = place.values.from(seen.begin, 0),
              .c = place.result,
              .scratch = place.products});
    store_rows(place.result, rows, s.head_width, place.inverse, head.of_out(o.out, first));
  }
}

// The operands shared by all blocks of keys.
struct Queries {
  PackedRight q_across, dout_across, q_down, dout_down;

  Queries(const Head& head, const Attention::Operands& o, const Workplace& place) {
    const AttentionShape& s = head.shape;
    const void* const q = head.of_qkv(o.qkv, 0, 0).data;
    const void* const dout = head.of_out(o.dout, 0).data;
    q_across = pack_right(across_shape(s, qkv_stride(s)), q, place.across[0]);
    dout_across = pack_right(across_shape(s, out_stride(s)), dout, place.across[1]);
    q_down = pack_right(down_shape(s, qkv_stride(s)), q, place.down[0]);
    dout_down = pack_right(down_shape(s, out_stride(s)), dout, place.down[1]);
  }
};

// All work for the keys [first, first + rows): completes dk and dv, adds their part of dq.
void backward_block(const Head& head, const Attention::Operands& o, const Queries& from,
                    Products& products, const Workplace& place, std::int64_t first) {
  const AttentionShape& s = head.shape;
  const std::int64_t rows = std::min(kBlock, s.sequence - first);
  const std::int64_t queries = queries_of(s, first).count();
  const void* const k = head.of_qkv(o.qkv, 1, first).data;
  const void* const v = head.of_qkv(o.qkv, 2, first).data;
  const Product& scores =
      products.get(scores_shape(s, rows, queries, Triangle::c_upper), Right::packed);
  scores.run(
      {.a = k, .b = from.q_across.from(0, first), .c = place.scores, .scratch = place.products});
  scores.run({.a = v,
              .b = from.dout_across.from(0, first),
              .c = place.dprobabilities,
              .scratch = place.products});
  gradient_block({.first = first,
                  .rows = rows,
                  .queries = queries,
                  .window = s.seen(),
                  .stride = score_stride(queries),
                  .scale = s.score_scale(),
                  .scores = place.scores,
                  .dprobabilities = place.dprobabilities,
                  .log2_sums = place.log2_sums,
                  .deltas = place.deltas,
                  .probabilities = place.probabilities,
                  .dscores = place.dscores,
                  .dtype = s.dtype});
  const bool shared = head.queries_per_kv() > 1;
  const std::int64_t at = first * s.head_width;
  const Product& gradient = products.get(gradient_shape(s, rows, queries), Right::packed);
  gradient.run(
      {.a = place.probabilities,
       .b = from.dout_down.from(first, 0),
       .c = shared ? static_cast<void*>(place.dv + at) : head.of_qkv(o.dqkv, 2, first).data,
       .scratch = place.products});
  gradient.run(
      {.a = place.dscores,
       .b = from.q_down.from(first, 0),
       .c = shared ? static_cast<void*>(place.dk + at) : head.of_qkv(o.dqkv, 1, first).data,
       .scratch = place.products});
  products.get(dq_shape(s, rows, queries))
      .run({.a = place.dscores, .b = k, .c = place.dq + at, .scratch = place.products});
}

void backward_head(const Head& head, const Attention::Operands& o, Products& products,
                   const Workplace& place) {
  const AttentionShape& s = head.shape;
  row_dots(head.of_out(o.dout, 0), head.of_out(o.out, 0), s.sequence, s.head_width, place.deltas);
  const float* logsumexp = head.of_log_sums(o.logsumexp);
  for (std::int64_t row = 0; row < s.sequence; ++row) {
    place.log2_sums[row] = logsumexp[row] * kLog2E;
  }
  const std::int64_t all = s.sequence * s.head_width;
  std::fill(place.dq, place.dq + all, 0.0F);
  const bool shared = head.queries_per_kv() > 1;
  if (shared && head.opens_group()) {
    std::fill(place.dk, place.dk + all, 0.0F);
    std::fill(place.dv, place.dv + all, 0.0F);
  }
  const Queries queries(head, o, place);
  for (std::int64_t first = 0; first < s.sequence; first += kBlock) {
    backward_block(head, o, queries, products, place, first);
  }
  store_rows(place.dq, s.sequence, s.head_width, nullptr, head.of_qkv(o.dqkv, 0, 0));
  if (shared && head.closes_group()) {
    store_rows(place.dk, s.sequence, s.head_width, nullptr, head.of_qkv(o.dqkv, 1, 0));
    store_rows(place.dv, s.sequence, s.head_width, nullptr, head.of_qkv(o.dqkv, 2, 0));
  }
}

}  // namespace

Attention::Attention(int threads) {
  for (int i = 0; i < threads; ++i) products_.push_back(std::make_unique<Products>(1));
}

void Attention::prepare(const AttentionShape& s) {
  Workplace place{};
  block_bytes_ = std::max(block_bytes_, lay_out(s, nullptr, place));
  for (const auto& products : products_) {
    for (std::int64_t first = 0; first < s.sequence; first += kBlock) {
      const std::int64_t rows = std::min(kBlock, s.sequence - first);
      const std::int64_t keys = keys_of(s, first).count();
      const std::int64_t queries = queries_of(s, first).count();
      products->get(scores_shape(s, rows, keys, Triangle::c_lower), Right::packed);
      products->get(mix_shape(s, rows, keys), Right::packed);
      products->get(scores_shape(s, rows, queries, Triangle::c_upper), Right::packed);
      products->get(gradient_shape(s, rows, queries), Right::packed);
      products->get(dq_shape(s, rows, queries));
    }
  }
}

std::int64_t Attention::scratch_bytes() const {
  std::int64_t products = 0;
  for (const auto& each : products_) products = std::max(products, each->scratch_bytes());
  const std::int64_t one = round_up(block_bytes_ + products, kAlignment);
  return one * static_cast<std::int64_t>(products_.size());
}

template <typename Body>
void Attention::for_heads(const AttentionShape& shape, void* scratch, const Body& body) {
  const auto threads = static_cast<std::int64_t>(products_.size());
  const std::int64_t each = scratch_bytes() / threads;
  const std::int64_t groups = shape.batch * shape.key_heads();
  const std::int64_t size = shape.heads / shape.key_heads();
  parallel_for(static_cast<int>(threads), threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      Workplace place{};
      lay_out(shape, static_cast<std::byte*>(scratch) + thread * each, place);
      for (std::int64_t i = thread; i < groups; i += threads) {
        for (std::int64_t head = i * size; head < (i + 1) * size; ++head) {
          body(Head{shape, head / shape.heads, head % shape.heads},
               *products_[static_cast<std::size_t>(thread)], place);
        }
      }
    }
  });
}

void Attention::forward(const AttentionShape& shape, const Operands& operands) {
  for_heads(shape, operands.scratch, [&](const Head& head, Products& products, Workplace& place) {
    forward_head(head, operands, products, place);
  });
}

void Attention::backward(const AttentionShape& shape, const Operands& operands) {
  for_heads(shape, operands.scratch,
            [&](const Head& head, Products& products, const Workplace& place) {
              backward_head(head, operands, products, place);
            });
}

}  // namespace zero::cpu
