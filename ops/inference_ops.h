// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "ops/cache_shape.h"
#include "ops/quantized_rows.h"

namespace zero {

/// A weight as InferenceOps::pack() stores it.
struct StoredWeight {
  WeightShape shape;
  View values{};  ///< u8, weight_bytes() of the shape
};

/// How a stored weight is cut: into column blocks of `columns`; the last may have fewer. The weight
/// consists of parts, one behind another, each with as many bytes for every block in order. Whole
/// blocks, cut out, are a stored weight of their own.
struct WeightCut {
  std::int64_t columns = 0;
  std::vector<std::int64_t> part_bytes{};  ///< of a column block, for each part
};

/// Consecutive tokens of one sequence in a pass of the model.
struct SequenceRows {
  std::int64_t first = 0;  ///< row of the first token
  std::int64_t count = 0;
  std::int64_t position = 0;               ///< of the first token in its sequence
  std::span<const std::int32_t> blocks{};  ///< the sequence's blocks, in order: its block table
};

/// The rows of one pass of the model, on the host.
struct PassRows {
  std::vector<std::int32_t> tokens;         ///< of each row
  std::vector<std::int32_t> positions;      ///< of each row, in its sequence
  std::vector<std::int32_t> logit_rows;     ///< rows whose logits are computed
  std::vector<std::int32_t> receive_order;  ///< where a rank's own rows are among those it receives
  std::vector<SequenceRows> sequences;      ///< all rows, in order

  std::int64_t count() const { return static_cast<std::int64_t>(tokens.size()); }
};
/// Sizes that decide all that is submitted for a pass.
struct PassSizes {
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t tiles = 0;   ///< of attention
  std::int64_t splits = 0;  ///< queries of attention whose positions several tiles compute
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a null pointer in the comparison
  friend auto operator<=>(const PassSizes&, const PassSizes&) = default;
};
/// A list of row numbers of a pass.
enum class RowList : std::uint8_t { positions, logit_rows, receive_order };

/// The largest pass of a model.
struct PassLimits {
  CacheShape cache;
  std::int64_t heads = 0;  ///< of queries; a multiple of kv_heads
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  ///< of the longest sequence
};

/// Attention of a pass's rows over the cached keys and values of their sequences.
struct CachedAttention {
  CacheShape cache;
  std::int64_t heads = 0;  ///< of queries; a multiple of kv_heads
  View layer;              ///< the layer's part of the cache, all blocks: u8
  View qkv;                ///< rows of q, k and v side by side, rotated
  View out{};              ///< rows of heads * head_width
  /// Positions that a row sees: its own and those before it; 0: all up to its own.
  std::int64_t window = 0;
  float scale = 0;  ///< that scores are multiplied by; 0: 1 / sqrt(head_width)

  /// Of scores, for exponents of 2, which replace those of e.
  float exp2_scale() const {
    constexpr float kLog2E = 1.4426950408889634F;
    return scale != 0 ? scale * kLog2E : kLog2E / std::sqrt(static_cast<float>(cache.head_width));
  }
  /// The first position that a row at `position` sees.
  std::int64_t first_seen(std::int64_t position) const {
    return window == 0 ? 0 : std::max<std::int64_t>(position + 1 - window, 0);
  }
};

/// Operations that Ops lacks: a decoder's forward over a key/value cache. Calls submit work to the
/// device's compute stream; views must live until the stream has passed it. embed(), take_rows(),
/// append() and attend() work on the rows of the pass that begin() names.
/// A row's bits depend on the row and its sequence alone: not on the other rows of the pass, their
/// number, the number of threads, or the length of the cache's blocks. Operands are checked by
/// InferenceModel.
class InferenceOps {
 public:
  virtual ~InferenceOps() = default;
  InferenceOps() = default;
  InferenceOps(const InferenceOps&) = delete;
  InferenceOps& operator=(const InferenceOps&) = delete;

  /// Bytes of a stored weight.
  virtual std::int64_t weight_bytes(const WeightShape& shape) const = 0;
  virtual WeightCut weight_cut(const WeightShape& shape) const = 0;
  /// Stores rows [first, first + count) of the tensor (pack_rows), fp32 on the host, rounded to the
  /// weight's format. Returns when they are stored. Throws zero::Error as quantize() does.
  virtual void pack(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
                    View weight) = 0;
  /// Stores rows that are codes already.
  virtual void pack(const QuantizedRows& rows, View weight) = 0;

  /// Notes the scratch of linear() with up to `rows` rows.
  virtual void prepare(const WeightShape& shape, std::int64_t rows) = 0;
  /// The same of passes up to these limits.
  virtual void prepare(const PassLimits& limits) = 0;
  /// Allocates the scratch of what was prepared, charged to activations.
  virtual void allocate_scratch() = 0;
  /// Operands of linear() have memory for this many rows.
  virtual std::int64_t padded_rows(std::int64_t rows) const = 0;

  /// y (rows, out) = x (rows, in) W + bias; y in the weight's dtype or fp32; the bias may be empty.
  /// Rows up to padded_rows(rows) of y are overwritten.
  virtual void linear(const StoredWeight& weight, std::int64_t rows, View x, View bias, View y) = 0;

  /// Starts a pass. `pass` must live, unchanged, until the stream has passed its operations.
  /// Returns the sizes of a pass that is worth repeating: the operations on any pass of these sizes
  /// submit the same work on the same memory (Stream::repeat). Otherwise nothing.
  virtual std::optional<PassSizes> begin(const PassRows& pass) = 0;
  /// x (rows, in) = each row's token's column of the weight of a head or embedding.
  virtual void embed(const StoredWeight& weight, View x) = 0;
  /// Row i of `to`, (entries of the list, width) = row list[i] of `from`; of one dtype. Throws
  /// zero::Error on RowList::receive_order if the device serves models of one rank only.
  virtual void take_rows(RowList list, View from, std::int64_t width, View to) = 0;
  /// Writes the k and v of all rows to the cache.
  virtual void append(const CachedAttention& operands) = 0;
  /// out = softmax(scale q k^T) v over the cached positions that each row sees. Positions that no
  /// row of a pass sees take no time.
  virtual void attend(const CachedAttention& operands) = 0;
};

/// The operations of `device`, which must outlive them. Throws zero::Error if it has none.
std::unique_ptr<InferenceOps> make_inference_ops(Device& device);

}  // namespace zero
