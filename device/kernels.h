// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/exact_sum.h"
#include "device/stream.h"
#include "device/view.h"

namespace zero {

/// Elements [begin, begin + count).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// The elementwise operation of a reduction.
enum class ReduceOp : std::uint8_t { sum, max, min };

inline std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 3> kNames{"sum", "max", "min"};
  return kNames.at(static_cast<std::size_t>(op));
}

/// The epilogue of a shard owner's fp32 tree sum of one micro-batch:
///   value = tree(inputs) + addends[0] + addends[1] + ...    (in fp32, left to right)
///   destination = round(value)                              (to destination's dtype)
/// `destination` may be the same memory as one of the addends, or as one of the inputs if it has
/// that input's dtype. If `norm` is set, the sum of squares of the *rounded* values is added to it,
/// over blocks of kNormBlock elements counted from `destination`'s first element (callers align
/// shards and chunks to kNormBlock).
struct ReduceEpilogue {
  std::vector<View> addends;  // fp32, as many elements as destination
  View destination;           // fp32, bf16 or fp16
  std::shared_ptr<ExactSum>
      norm;  // may be null; touched only by the stream that runs the reduction

  /// Elements left out of `norm`, because another rank that also holds them counts them; ascending,
  /// disjoint. Null: none. They count as zeros, so that any partition of the norm's blocks over
  /// ranks gives the same bits.
  std::shared_ptr<const std::vector<ElementRange>> excluded{};
  std::int64_t excluded_at = 0;  // index of destination's first element in `excluded`

  /// The epilogue of elements [begin, begin + count) of the destination.
  ReduceEpilogue slice(std::int64_t begin, std::int64_t count) const {
    ReduceEpilogue part{{}, destination.slice(begin, count), norm, excluded, excluded_at + begin};
    for (const View& addend : addends) part.addends.push_back(addend.slice(begin, count));
    return part;
  }
};

/// Vector primitives that the engine and the collectives need on every device. All are asynchronous
/// on `stream`: views must stay alive until the stream has passed the call. Views of one call have
/// equal counts (checked, zero::Error). Elementwise results do not depend on the thread count or on
/// how a view is cut.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// to = convert(from), rounding to nearest even; dtypes fp32, bf16, fp16 in any pair. Equal
  /// dtypes: a plain copy of any dtype, in which either side may be host memory (a view without a
  /// device): upload and download. Host memory that work of a stream writes before it is copied to
  /// a GPU must be of Device::allocate_host: other memory may be read by this call itself. `to` may
  /// begin at the same address as `from` if its elements are not larger.
  virtual void convert(Stream& stream, View from, View to) = 0;
  /// Sets every byte to zero.
  virtual void zero(Stream& stream, View view) = 0;
  /// Fills with signalling garbage: NaN for floating dtypes, 0x7f bytes otherwise. For checked
  /// builds.
  virtual void poison(Stream& stream, View view) = 0;
  /// Fills `to` (fp32) with values computed on the host: `source(begin, out)` writes elements
  /// [begin, begin + out.size()). The ranges cover `to`; calls come in any order and from several
  /// threads at once.
  using Source = std::function<void(std::int64_t begin, std::span<float> out)>;
  virtual void generate(Stream& stream, View to, Source source) = 0;
  /// The fixed binary tree sum of `inputs` (fp32, bf16 or fp16, all of one dtype, at least one),
  /// then the epilogue.
  virtual void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) = 0;
  /// Lets tree_reduce() accumulate `norm` in device memory until flush_norms(), so that many
  /// reductions share one copy to the host. CPU kernels add to `norm` directly.
  virtual void defer_norm(const std::shared_ptr<ExactSum>& /*norm*/) {}
  /// Completes the norms of this stream's reductions for later work of `stream`.
  virtual void flush_norms(Stream& /*stream*/) {}
  /// to = inputs[0] op inputs[1] op ..., elementwise by the fixed binary tree; fp32, fp64, i32 or
  /// i64, all views of one dtype, at least one input. Integer sums wrap; a NaN among the inputs
  /// makes a maximum or minimum NaN. `to` may be the same memory as one of the inputs.
  virtual void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) = 0;
};

}  // namespace zero
