// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/weight_products.h"
#include "ops/inference_ops.h"

namespace zero::cpu {

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

}  // namespace zero::cpu
