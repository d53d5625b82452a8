// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <cmath>
#include <string>

#include "base/checked_math.h"
#include "device/planning/clock.h"

namespace zero {

namespace {

using Kind = OptimizerConfig::Kind;

void check_view(const View& view, std::int64_t count, std::string_view who, std::string_view what) {
  ZERO_CHECK(view.count() == count, "{}: {} has {} elements, the master values have {}", who, what,
             view.count(), count);
}

void check_fp32(const View& view, std::string_view who, std::string_view what) {
  ZERO_CHECK(view.dtype() == DType::fp32, "{}: {} is {}; expected fp32", who, what,
             name_of(view.dtype()));
}

void check_scales(const View& scales, std::int64_t elements, std::string_view who,
                  std::string_view what) {
  check_fp32(scales, who, what);
  const std::int64_t blocks = div_ceil(elements, kMomentBlock);
  ZERO_CHECK(scales.count() == blocks, "{}: {} has {} values, expected {}: one for {} elements",
             who, what, scales.count(), blocks, kMomentBlock);
}

void check_moments(const UpdateArguments& a, const OptimizerConfig& config, int moments,
                   std::string_view who) {
  const DType dtype = moment_dtype(config.moments);
  for (std::size_t i = 0; i < static_cast<std::size_t>(moments); ++i) {
    const std::string what = fmt::format("moment {}", i);
    check_view(a.moments[i], a.master.count(), who, what);
    ZERO_CHECK(a.moments[i].dtype() == dtype, "{}: {} is {}; expected {}", who, what,
               name_of(a.moments[i].dtype()), name_of(dtype));
    if (config.moments == MomentFormat::eight_bit)
      check_scales(a.scales[i], a.master.count(), who, fmt::format("scale {}", i));
  }
  ZERO_CHECK(a.elements.run >= 1, "{}: runs of {} logical elements; expected 1 or more", who,
             a.elements.run);
}

void check_views(const UpdateArguments& a, std::string_view who) {
  check_fp32(a.master, who, "the master");
  check_view(a.gradient, a.master.count(), who, "the gradient");
  const DType gradient = a.gradient.dtype();
  ZERO_CHECK(gradient == DType::fp32 || gradient == DType::bf16 || gradient == DType::fp16,
             "{}: the gradient is {}; expected fp32, bf16 or fp16", who, name_of(gradient));
  if (a.compute.empty()) return;
  check_view(a.compute, a.master.count(), who, "the compute copy");
  const DType compute = a.compute.dtype();
  ZERO_CHECK(compute == DType::bf16 || compute == DType::fp16,
             "{}: the compute copy is {}; expected bf16 or fp16, or none", who, name_of(compute));
}

void check_numbers(const UpdateArguments& a, std::string_view who) {
  ZERO_CHECK(a.step >= 1, "{}: step {}; steps are counted from 1", who, a.step);
  ZERO_CHECK(std::isfinite(a.learning_rate) && a.learning_rate >= 0,
             "{}: the learning rate is {}; expected a finite value of 0 or more", who,
             a.learning_rate);
  ZERO_CHECK(std::isfinite(a.weight_decay) && a.weight_decay >= 0,
             "{}: the weight decay is {}; expected a finite value of 0 or more", who,
             a.weight_decay);
  ZERO_CHECK(std::isfinite(a.gradient_scale),
             "{}: the gradient scale is {}; skip the step when the gradient norm is not finite",
             who, a.gradient_scale);
}

}  // namespace

CodedMoment CodedMoment::slice(std::int64_t begin, std::int64_t count) const {
  const std::int64_t first = phase + begin;
  const std::int64_t block = first / kMomentBlock;
  const std::int64_t blocks = div_ceil(first + count, kMomentBlock) - block;
  return {moment, codes.slice(begin, count), scales.slice(block, blocks), first % kMomentBlock};
}

int Optimizer::moments() const {
  if (config_.kind != Kind::sgd) return 2;
  return config_.momentum > 0 ? 1 : 0;
}

void Optimizer::update(Stream& stream, const UpdateArguments& arguments) {
  const std::string_view who = name_of(config_.kind);
  check_views(arguments, who);
  check_moments(arguments, config_, moments(), who);
  check_numbers(arguments, who);
  if (arguments.master.empty()) return;
  std::int64_t bytes = 2 * arguments.master.bytes() + arguments.gradient.bytes();
  for (const View& moment : arguments.moments) bytes += 2 * moment.bytes();
  planning::announce(stream, bytes + arguments.compute.bytes());
  do_update(stream, arguments);
}

void Optimizer::decode(Stream& stream, const CodedMoment& from, const View& to) {
  const std::string_view who = "decode";
  check_fp32(to, who, "the result");
  ZERO_CHECK(from.codes.dtype() == DType::u8 && from.codes.count() == to.count(),
             "{}: {} {} for {} values; expected as many u8", who, from.codes.count(),
             name_of(from.codes.dtype()), to.count());
  ZERO_CHECK(from.phase >= 0 && from.phase < kMomentBlock,
             "{}: the first code is element {} of its block; expected 0 to {}", who, from.phase,
             kMomentBlock - 1);
  check_scales(from.scales, from.phase + to.count(), who, "the scale");
  if (!to.empty()) do_decode(stream, from, to);
}

float clip_factor(double norm, double limit) {
  ZERO_CHECK(limit >= 0 && std::isfinite(limit),
             "gradient clipping: the limit is {}; expected a norm above 0, or 0 for none", limit);
  if (limit == 0) return 1.0F;
  const double factor = limit / (norm + 1e-6);
  return factor >= 1 ? 1.0F : static_cast<float>(factor);  // a NaN norm gives NaN
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Device& device) {
  validate(config);
  if (device.kind() == DeviceKind::cuda) return cuda::make_optimizer(config);
  return cpu::make_optimizer(config, device.threads());
}

}  // namespace zero
