// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

// Plain loops in double: what the kernels must compute, written to be read, not to be fast.
namespace zero::reference {

using Values = std::vector<double>;

/// (m, k) * (k, n)
Values product(const Values& a, const Values& b, std::int64_t m, std::int64_t k, std::int64_t n);
Values transposed(const Values& a, std::int64_t rows, std::int64_t columns);
/// The sum of the rows of a (rows, columns).
Values column_sums(const Values& a, std::int64_t rows, std::int64_t columns);

Values layer_norm(const Values& x, const Values& gamma, const Values& beta, std::int64_t columns);
Values rms_norm(const Values& x, const Values& weight, std::int64_t columns, double epsilon);
Values gelu(const Values& x);
/// x (rows, 2 columns) to (rows, columns): silu(left half) * right half.
Values swiglu(const Values& x, std::int64_t columns);
/// The same with gelu in place of silu.
Values geglu(const Values& x, std::int64_t columns);

struct Attention {
  std::int64_t batch, sequence, heads, head_width;
  std::int64_t kv_heads = 0;  // 0: as heads
  std::int64_t window = 0;    // positions that a query sees; 0: all up to its own
  double scale = 0;           // of scores; 0: 1 / sqrt(head_width)
  std::int64_t qkv_width() const { return (heads + 2 * keys()) * head_width; }
  double score_scale() const {
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_width));
  }
  std::int64_t keys() const { return kv_heads == 0 ? heads : kv_heads; }
  bool sees(std::int64_t query, std::int64_t key) const {
    return key <= query && (window == 0 || key > query - window);
  }
};
/// qkv (batch * sequence, qkv_width) to (batch * sequence, C).
Values attention(const Attention& shape, const Values& qkv);
/// The gradient of sum(out * dout) for qkv.
Values attention_backward(const Attention& shape, const Values& qkv, const Values& dout);

/// Cross-entropy of each row.
Values cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                     std::int64_t columns);

/// d(sum(f(x) * weights)) / dx by central differences.
Values differences(const std::function<Values(const Values&)>& f, const Values& x,
                   const Values& weights);

}  // namespace zero::reference
