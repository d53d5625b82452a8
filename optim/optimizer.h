// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>

#include "device/device.h"
#include "optim/optimizer_config.h"

namespace zero {

/// Names the elements of an update for stochastic rounding, whatever rank owns them: element i of
/// the update is element at(i) of the logical tensor.
struct LogicalElements {
  std::uint64_t parameter = 0;  ///< a hash of the parameter's full name
  std::int64_t first = 0;
  std::int64_t run = std::numeric_limits<std::int64_t>::max();  ///< consecutive elements
  std::int64_t stride = 0;  ///< from the first element of a run to that of the next

  constexpr std::int64_t at(std::int64_t i) const { return first + i / run * stride + i % run; }
};

/// One run of owned elements to update. All views have equal counts.
struct UpdateArguments {
  View master;  ///< fp32, in and out
  /// In and out, in moment_dtype(OptimizerConfig::moments); the first Optimizer::moments() are
  /// used.
  std::array<View, 2> moments;
  View gradient;  ///< fp32, bf16 or fp16
  View compute;   ///< bf16 or fp16 copy of the result, or empty
  double learning_rate = 0;
  double weight_decay = 0;
  float gradient_scale = 1;  ///< multiplies the gradient first: clip factor over loss scale
  std::int64_t step = 1;     ///< from 1, for bias correction
  /// fp32, in and out: of 8-bit moments, whose elements begin a block, one for each block begun.
  std::array<View, 2> scales{};
  LogicalElements elements{};  ///< of bf16 moments
};

/// A run of elements of one 8-bit moment.
struct CodedMoment {
  int moment = 0;          ///< 0: the first, with a sign; 1: the second
  View codes;              ///< u8
  View scales;             ///< fp32, of the blocks that have elements in `codes`
  std::int64_t phase = 0;  ///< of the first code in its block, 0 to kMomentBlock - 1

  /// Codes [begin, begin + count) and the scales of their blocks.
  CodedMoment slice(std::int64_t begin, std::int64_t count) const;
};

/// Updates owned elements; has no notion of ranks. Elementwise: the same bits for any split of the
/// elements (of 8-bit moments: at ends of blocks), any thread count and alignment on one SIMD
/// target. One pass over memory: unscale, clip, moments, update, low-precision copy.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  const OptimizerConfig& config() const { return config_; }
  /// State tensors per parameter: 2 for Adam(W); 1 for SGD with momentum, 0 without.
  int moments() const;
  /// Asynchronous on `stream`. Throws zero::Error on mismatched counts or dtypes.
  void update(Stream& stream, const UpdateArguments& arguments);
  /// to = the values of 8-bit codes; `to` is fp32 in the memory of the device. Asynchronous on
  /// `stream`. Throws zero::Error on mismatched counts or dtypes.
  void decode(Stream& stream, const CodedMoment& from, const View& to);

 protected:
  explicit Optimizer(const OptimizerConfig& config) : config_(config) {}
  virtual void do_update(Stream& stream, const UpdateArguments& arguments) = 0;
  virtual void do_decode(Stream& stream, const CodedMoment& from, const View& to) = 0;

 private:
  OptimizerConfig config_;
};

/// The optimizer of `config` for `device`; throws zero::Error on constants out of range (naming
/// each).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Device& device);

/// The factor that brings a gradient of global norm `norm` to at most `limit`: min(1, limit / (norm
/// + 1e-6)), as PyTorch's clip_grad_norm_. A limit of 0 means no clipping. In double, rounded once.
float clip_factor(double norm, double limit);

namespace cpu {

/// make_optimizer for a CPU device of `threads` threads; does not check the constants.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, int threads);

}  // namespace cpu

namespace cuda {

/// make_optimizer for a CUDA device; does not check the constants. Throws zero::Error if this build
/// has no CUDA.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config);

}  // namespace cuda

}  // namespace zero
