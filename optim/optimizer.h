// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "device/device.h"

namespace zero {

/// The update rule and its constants. Doubles, like PyTorch's: step sizes are computed in double
/// and rounded to fp32 once.
struct OptimizerConfig {
  enum class Kind : std::uint8_t {
    adamw,  ///< decoupled weight decay (Loshchilov & Hutter 2019)
    adam,   ///< weight decay added to the gradient (Kingma & Ba 2015)
    sgd,    ///< momentum as PyTorch defines it: buf = momentum * buf + g; p -= lr * buf
  };
  Kind kind = Kind::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< for parameters of no other group
  double momentum = 0;         ///< sgd
};
std::string_view name_of(OptimizerConfig::Kind kind);
/// Throws zero::Error naming every constant of the kind that is out of range.
void validate(const OptimizerConfig& config);

/// One run of owned elements to update. All views have equal counts.
struct UpdateArguments {
  View master;                  ///< fp32, in and out
  std::array<View, 2> moments;  ///< fp32, in and out; the first Optimizer::moments() are used
  View gradient;                ///< fp32, bf16 or fp16
  View compute;                 ///< bf16 or fp16 copy of the result, or empty
  double learning_rate = 0;
  double weight_decay = 0;
  float gradient_scale = 1;  ///< multiplies the gradient first: clip factor over loss scale
  std::int64_t step = 1;     ///< from 1, for bias correction
};

/// Updates owned elements; has no notion of ranks. Elementwise: the same bits for any split of the
/// elements, any thread count and alignment on one SIMD target. One pass over memory: unscale,
/// clip, moments, update, low-precision copy.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  const OptimizerConfig& config() const { return config_; }
  /// fp32 state tensors per parameter: 2 for Adam(W); 1 for SGD with momentum, 0 without.
  int moments() const;
  /// Asynchronous on `stream`. Throws zero::Error on mismatched counts or dtypes.
  void update(Stream& stream, const UpdateArguments& arguments);

 protected:
  explicit Optimizer(const OptimizerConfig& config) : config_(config) {}
  virtual void do_update(Stream& stream, const UpdateArguments& arguments) = 0;

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
