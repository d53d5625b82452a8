// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "base/checked_math.h"
#include "base/consecutive.h"
#include "ops/inference_ops.h"

namespace zero::testing {

struct Heads {
  std::int64_t heads, kv_heads, width;
  DType dtype = DType::fp32;

  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * width; }
  std::int64_t out_width() const { return heads * width; }
};
inline void PrintTo(const Heads& heads, std::ostream* out) {
  *out << heads.heads << "_by_" << heads.kv_heads << "_of_" << heads.width << "_"
       << name_of(heads.dtype);
}

/// A layer's cache of one sequence, whose blocks lie in no order.
class CachedLayer {
 public:
  CachedLayer(const Heads& heads, CacheFormat format, std::int64_t tokens,
              std::int64_t block_tokens, int threads = 2, std::int64_t window = 0)
      : heads_(heads),
        window_(window),
        shape_{heads.kv_heads, heads.width, block_tokens, heads.dtype, format},
        device_(cpu::open({.threads = threads})),
        ops_(make_inference_ops(*device_)),
        table_(consecutive(0, div_ceil(tokens, block_tokens))) {
    std::shuffle(table_.begin(), table_.end(), std::mt19937(5));
    const std::int64_t bytes = std::ssize(table_) * shape_.block_bytes();
    cache_ = device_->allocate(bytes, DType::u8, MemoryClass::activations, "cache");
    std::memset(cache_.view().data(), 0xff, static_cast<std::size_t>(bytes));  // NaN, if fp32
    ops_->prepare(PassLimits{.cache = shape_});
    ops_->allocate_scratch();
  }

  /// Attention of rows of q, k and v behind those that the layer holds, by passes of that length.
  std::vector<float> attend(const std::vector<float>& qkv, std::int64_t length) {
    const std::int64_t count = std::ssize(qkv) / heads_.qkv_width();
    std::vector<float> out;
    for (std::int64_t first = 0; first < count; first += length) {
      const std::int64_t rows = std::min(length, count - first);
      const auto begin = qkv.begin() + first * heads_.qkv_width();
      const std::vector<float> part = attend({begin, begin + rows * heads_.qkv_width()});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  const std::byte* head(std::int64_t position, std::int64_t kv_head) const {
    const std::int64_t block = table_[static_cast<std::size_t>(position / shape_.block_tokens)];
    return static_cast<const std::byte*>(cache_.view().data()) + block * shape_.block_bytes() +
           kv_head * shape_.head_bytes() +
           position % shape_.block_tokens / kCacheChunk * shape_.chunk_bytes();
  }

 private:
  std::vector<float> attend(const std::vector<float>& qkv) {
    const std::int64_t rows = std::ssize(qkv) / heads_.qkv_width();
    PassRows pass;
    pass.sequences.push_back({0, rows, length_, table_});
    for (std::int64_t i = 0; i < rows; ++i) {
      pass.tokens.push_back(0);
      pass.positions.push_back(static_cast<std::int32_t>(length_ + i));
    }
    length_ += rows;
    const auto take = [&](std::int64_t count) {
      return device_->allocate(count, heads_.dtype, MemoryClass::activations, "operand");
    };
    const Buffer in = take(std::ssize(qkv));
    const Buffer out = take(rows * heads_.out_width());
    device_->kernels().convert(device_->compute(), fp32(qkv), in.view());
    const CachedAttention operands{shape_,    heads_.heads, cache_.view(),
                                   in.view(), out.view(),   window_};
    ops_->begin(pass);
    ops_->append(operands);
    ops_->attend(operands);
    std::vector<float> read(static_cast<std::size_t>(rows * heads_.out_width()));
    device_->kernels().convert(device_->compute(), out.view(), fp32(read));
    device_->compute().synchronize();
    return read;
  }
  View fp32(const std::vector<float>& values) const {
    return {const_cast<float*>(values.data()), std::ssize(values), DType::fp32, device_.get()};
  }

  Heads heads_;
  std::int64_t window_;
  CacheShape shape_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<InferenceOps> ops_;
  std::vector<std::int32_t> table_;
  Buffer cache_;
  std::int64_t length_ = 0;
};

}  // namespace zero::testing
