// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "device/cpu/parallel.h"
#include "ops/cpu/cached_attention.h"
#include "ops/cpu/make_ops.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/weight_products.h"
#include "ops/inference_ops.h"

namespace zero::cpu {
namespace {

// Rows of one head that a thread attends at a time; few where threads would have nothing to do.
constexpr std::int64_t kAttendedRows = 32;
constexpr std::int64_t kFewAttendedRows = 8;
constexpr std::int64_t kAppendedRows = 4;  // of all heads
constexpr std::int64_t kEmbeddedRows = 4;  // at least

/// All rows of all sequences, for each of some heads, cut so that threads can share them.
std::vector<AttentionRows> pieces_of(const PassRows& pass, std::int64_t kv_heads,
                                     std::int64_t rows) {
  std::vector<AttentionRows> pieces;
  for (const SequenceRows& sequence : pass.sequences) {
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      for (std::int64_t row = 0; row < sequence.count; row += rows) {
        pieces.push_back({&sequence, head, row, std::min(sequence.count, row + rows)});
      }
    }
  }
  return pieces;
}

const std::vector<std::int32_t>& list_of(const PassRows& pass, RowList list) {
  switch (list) {
    case RowList::positions:
      return pass.positions;
    case RowList::logit_rows:
      return pass.logit_rows;
    default:
      return pass.receive_order;
  }
}

/// InferenceOps on a device whose memory the CPU can access, spread over the device's threads.
class CpuInferenceOps final : public InferenceOps {
 public:
  explicit CpuInferenceOps(Device& device) : device_(device), products_(device.threads()) {}

  std::int64_t weight_bytes(const WeightShape& shape) const override { return packed_bytes(shape); }
  WeightCut weight_cut(const WeightShape& shape) const override { return packed_cut(shape); }
  void pack(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
            View weight) override;
  void pack(const QuantizedRows& rows, View weight) override;
  void prepare(const WeightShape& shape, std::int64_t rows) override {
    products_.prepare(shape, rows);
  }
  void prepare(const PassLimits& limits) override;
  void allocate_scratch() override;
  std::int64_t padded_rows(std::int64_t rows) const override { return cpu::padded_rows(rows); }
  void linear(const StoredWeight& weight, std::int64_t rows, View x, View bias, View y) override;
  std::optional<PassSizes> begin(const PassRows& pass) override {
    pass_ = &pass;
    return std::nullopt;
  }
  void embed(const StoredWeight& weight, View x) override;
  void take_rows(RowList list, View from, std::int64_t width, View to) override;
  void append(const CachedAttention& operands) override;
  void attend(const CachedAttention& operands) override;

 private:
  std::byte* scratch() const { return static_cast<std::byte*>(scratch_.view().data()); }

  Device& device_;
  WeightProducts products_;
  const PassRows* pass_ = nullptr;
  std::int64_t attention_bytes_ = 0;  // of one thread
  Buffer scratch_;
};

void CpuInferenceOps::pack(const WeightShape& shape, std::int64_t first,
                           std::span<const float> rows, View weight) {
  if (shape.format != WeightFormat::plain) {
    return pack(quantize(shape, first, rows, device_.threads()), weight);
  }
  pack_weight(shape, first, rows, weight, device_.threads());
}

void CpuInferenceOps::pack(const QuantizedRows& rows, View weight) {
  pack_weight(rows, weight, device_.threads());
}

void CpuInferenceOps::prepare(const PassLimits& limits) {
  attention_bytes_ = std::max(attention_bytes_, attention_scratch_bytes(limits.cache));
}

void CpuInferenceOps::allocate_scratch() {
  const std::int64_t bytes =
      std::max(products_.scratch_bytes(), device_.threads() * attention_bytes_);
  scratch_ = device_.allocate(bytes, DType::u8, MemoryClass::activations, "scratch");
}

void CpuInferenceOps::linear(const StoredWeight& weight, std::int64_t rows, View x, View bias,
                             View y) {
  device_.compute().submit("linear", [=, this] {
    products_.multiply(weight.shape, rows, {x, weight.values, bias, y, scratch()});
  });
}

void CpuInferenceOps::embed(const StoredWeight& weight, View x) {
  device_.compute().submit("embed", [=, this, pass = pass_] {
    const std::span<const std::int32_t> tokens(pass->tokens);
    const auto embed = [&](std::int64_t begin, std::int64_t end) {
      const auto count = static_cast<std::size_t>(end - begin);
      gather_columns(weight.shape, weight.values,
                     tokens.subspan(static_cast<std::size_t>(begin), count),
                     x.slice(begin * weight.shape.in, (end - begin) * weight.shape.in));
    };
    parallel_for(device_.threads(), std::ssize(tokens), kEmbeddedRows, embed);
  });
}

void CpuInferenceOps::take_rows(RowList list, View from, std::int64_t width, View to) {
  device_.compute().submit("take_rows", [=, pass = pass_] {
    const auto bytes = static_cast<std::size_t>(width * size_of(from.dtype()));
    auto* target = static_cast<std::byte*>(to.data());
    for (const std::int32_t row : list_of(*pass, list)) {
      const auto* source =
          static_cast<const std::byte*>(from.data()) + static_cast<std::size_t>(row) * bytes;
      std::copy(source, source + bytes, target);
      target += bytes;
    }
  });
}

void CpuInferenceOps::append(const CachedAttention& operands) {
  device_.compute().submit("append", [this, operands, pass = pass_] {
    const std::vector<AttentionRows> pieces = pieces_of(*pass, 1, kAppendedRows);
    const auto append = [&](std::int64_t /*thread*/, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const AttentionRows& piece = pieces[static_cast<std::size_t>(i)];
        append_rows(operands, *piece.sequence, piece.begin, piece.end);
      }
    };
    parallel_shares(device_.threads(), std::ssize(pieces), 1, append);
  });
}

void CpuInferenceOps::attend(const CachedAttention& operands) {
  device_.compute().submit("attend", [this, operands, pass = pass_] {
    std::vector<AttentionRows> pieces = pieces_of(*pass, operands.cache.kv_heads, kAttendedRows);
    if (std::ssize(pieces) < 2 * device_.threads()) {
      pieces = pieces_of(*pass, operands.cache.kv_heads, kFewAttendedRows);
    }
    const auto attend = [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        attend_rows(operands, pieces[static_cast<std::size_t>(i)],
                    scratch() + thread * attention_bytes_);
      }
    };
    parallel_shares(device_.threads(), std::ssize(pieces), 1, attend);
  });
}

}  // namespace

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  return std::make_unique<CpuInferenceOps>(device);
}

}  // namespace zero::cpu
