// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/checked_math.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "device/device.h"
#include "launch/telemetry/machine_limits.h"
#include "model/vocabulary_parallel.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kElements = std::int64_t{1} << 27;  // of long arrays: beyond any cache
constexpr std::int64_t kSide = 8192;                       // of the product that is the limit
constexpr int kCalls = 10;                                 // of one timing

/// Work on the compute stream, and what it must move or compute.
struct Case {
  std::string name;
  DType dtype = DType::bf16;
  double bytes = 0;
  double flop = 0;
  std::function<void()> submit;
};

/// Arrays of random values on a GPU, and what is done with them.
class Cases {
 public:
  explicit Cases(Device& device) : device_(device), ops_(make_ops(device)) {
    random_ = take(kElements, DType::fp32);
    device.kernels().generate(compute(), random_, random_floats);
    add_moves();
    add_updates();
    for (const DType dtype : {DType::bf16, DType::fp16}) add_products(dtype);
    add_rows();
    add_linear_backward();
    add_head();
    ops_->allocate_scratch();
    compute().synchronize();
  }

  /// Median seconds of a call of each.
  std::vector<double> measure() {
    std::vector<std::function<void()>> bodies;
    for (const Case& each : cases_) {
      bodies.emplace_back([this, &each] {
        for (int call = 0; call < kCalls; ++call) each.submit();
        compute().synchronize();
      });
    }
    std::vector<double> seconds;
    for (const Timing& timing : interleaved(bodies, kRounds)) {
      seconds.push_back(timing.median / kCalls);
    }
    return seconds;
  }
  const std::vector<Case>& all() const { return cases_; }
  /// How the operations differ from what was asked for, such as attention without cuDNN; may be
  /// empty.
  std::string note() const { return ops_->note(); }

 private:
  Stream& compute() { return device_.compute(); }
  View take(std::int64_t count, DType dtype) {
    buffers_.push_back(device_.allocate(count, dtype, MemoryClass::other, "bench"));
    return buffers_.back().view();
  }
  View random(std::int64_t count, DType dtype) {
    const View view = take(count, dtype);
    for (std::int64_t begin = 0; begin < count; begin += kElements) {
      const std::int64_t part = std::min(kElements, count - begin);
      device_.kernels().convert(compute(), random_.slice(0, part), view.slice(begin, part));
    }
    return view;
  }

  void add_moves() {
    const auto n = static_cast<double>(kElements);
    const View copy = take(kElements, DType::fp32);
    const View half = random(kElements, DType::bf16);
    Kernels& kernels = device_.kernels();
    cases_.push_back(
        {"copy", DType::fp32, 8 * n, 0, [&, copy] { kernels.convert(compute(), random_, copy); }});
    cases_.push_back({"convert to bf16", DType::fp32, 6 * n, 0,
                      [&, half] { kernels.convert(compute(), random_, half); }});
    constexpr int kInputs = 8;
    const std::int64_t part = kElements / kInputs;
    std::vector<View> inputs;
    for (int i = 0; i < kInputs; ++i) inputs.push_back(half.slice(i * part, part));
    const View sum = take(part, DType::bf16);
    cases_.push_back(
        {"tree_reduce of 8 with norm", DType::bf16, 2.0 * static_cast<double>(part) * (kInputs + 1),
         0, [&, inputs, sum] {
           kernels.tree_reduce(
               compute(), inputs,
               {.addends = {}, .destination = sum, .norm = std::make_shared<ExactSum>()});
         }});
  }

  void add_updates() {
    UpdateArguments arguments{.master = random(kElements, DType::fp32),
                              .moments = {},
                              .gradient = random(kElements, DType::bf16),
                              .compute = take(kElements, DType::bf16),
                              .learning_rate = 1e-6};
    for (const MomentFormat format :
         {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
      std::int64_t bytes = 8 + 2 + 2;  // of an element
      const auto zeros = [&](std::int64_t count, DType dtype) {
        const View view = take(count, dtype);
        device_.kernels().zero(compute(), view);
        return view;
      };
      std::int64_t scales = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        arguments.moments.at(i) = zeros(kElements, moment_dtype(format));
        bytes += 2 * size_of(moment_dtype(format));
        if (format != MomentFormat::eight_bit) continue;
        arguments.scales.at(i) = zeros(kElements / kMomentBlock, DType::fp32);
        scales += 8 * kElements / kMomentBlock;
      }
      const std::shared_ptr<Optimizer> optimizer = make_optimizer({.moments = format}, device_);
      cases_.push_back({fmt::format("AdamW, moments {}", name_of(format)), DType::bf16,
                        static_cast<double>(bytes * kElements + scales), 0,
                        [this, optimizer, arguments] { optimizer->update(compute(), arguments); }});
    }
  }

  void add_product(const std::string& name, const LinearShape& shape) {
    ops_->prepare(shape, Ops::LinearUse::forward);
    const View x = random(shape.rows * shape.in, shape.dtype);
    const View weight = random(shape.in * shape.out, shape.dtype);
    const View y = take(shape.rows * shape.out, shape.dtype);
    add_multiplication(name, shape,
                       [=, this] { ops_->linear_forward(shape, x, weight, View(), y); });
  }

  void add_products(DType dtype) {
    add_product("product", {kSide, kSide, kSide, WeightLayout::in_out, dtype, dtype});
    add_product("product of GPT-2's MLP", {32768, 768, 3072, WeightLayout::in_out, dtype, dtype});
    const AttentionShape attention{
        .batch = 32, .sequence = 1024, .heads = 12, .head_width = 64, .dtype = dtype};
    ops_->prepare(attention);
    const std::int64_t rows = attention.batch * attention.sequence;
    const std::int64_t width = attention.heads * attention.head_width;
    const View qkv = random(rows * attention.qkv_width(), dtype);
    const View out = take(rows * width, dtype);
    const View dout = random(rows * width, dtype);
    const View dqkv = take(rows * attention.qkv_width(), dtype);
    const View logsumexp = take(rows * attention.heads, DType::fp32);
    // q k^T and its product with v, over the half that is not masked.
    const double flop = 2.0 * static_cast<double>(rows) * static_cast<double>(width) *
                        static_cast<double>(attention.sequence);
    cases_.push_back({"attention forward", dtype, 0, flop,
                      [=, this] { ops_->attention_forward(attention, qkv, out, logsumexp); }});
    cases_.push_back({"attention backward", dtype, 0, 2.5 * flop, [=, this] {
                        ops_->attention_backward(attention, qkv, out, logsumexp, dout, dqkv);
                      }});
  }

  void add_rows() {
    constexpr auto kBf16 = DType::bf16;
    constexpr std::int64_t kRows = 32768;
    constexpr std::int64_t kWidth = 768;
    const View x = random(kRows * kWidth, kBf16);
    const View y = take(kRows * kWidth, kBf16);
    cases_.push_back({"GELU", kBf16, 4.0 * static_cast<double>(kRows * kWidth), 0,
                      [=, this] { ops_->gelu_forward(x, y); }});
    const View gamma = random(kWidth, kBf16);
    const View beta = random(kWidth, kBf16);
    const View statistics = take(2 * kRows, DType::fp32);
    const MatrixShape shape{kRows, kWidth, kBf16};
    cases_.push_back(
        {"layer norm", kBf16, 4.0 * static_cast<double>(kRows * kWidth), 0, [=, this] {
           ops_->norm_forward(
               shape, {.x = x, .weight = gamma, .bias = beta, .y = y, .statistics = statistics});
         }});
    ops_->prepare(shape);
    const View dx = random(kRows * kWidth, kBf16);
    const View dgamma = take(kWidth, kBf16);
    const View dbeta = take(kWidth, kBf16);
    // Reads x, dy and dx once, and writes dx.
    cases_.push_back(
        {"layer norm backward", kBf16, 8.0 * static_cast<double>(kRows * kWidth), 0, [=, this] {
           ops_->norm_backward(shape, {x, statistics, gamma, y, dx, dgamma, dbeta});
         }});
  }

  void add_multiplication(const std::string& name, const LinearShape& shape,
                          std::function<void()> submit) {
    const double flop = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.in) *
                        static_cast<double>(shape.out);
    cases_.push_back({name, shape.dtype, 0, flop, std::move(submit)});
  }

  /// What backward multiplies in the MLP of GPT-2, with and without what it takes on the way.
  void add_linear_backward() {
    constexpr auto kBf16 = DType::bf16;
    const LinearShape up{32768, 768, 3072, WeightLayout::in_out, kBf16, kBf16};
    const LinearShape down{32768, 3072, 768, WeightLayout::in_out, kBf16, kBf16};
    for (const LinearShape& shape : {up, down}) ops_->prepare(shape, Ops::LinearUse::training);
    ops_->prepare(MatrixShape{up.rows, up.out, kBf16});
    const View narrow = random(up.rows * up.in, kBf16);
    const View wide = random(up.rows * up.out, kBf16);
    const View weight = random(up.in * up.out, kBf16);
    const View dweight = take(up.in * up.out, kBf16);
    const View dbias = take(up.out, kBf16);
    const View dwide = take(up.rows * up.out, kBf16);
    const View again = take(up.rows * up.out, kBf16);
    const View dnarrow = take(up.rows * up.in, kBf16);
    add_multiplication("MLP, dx", up,
                       [=, this] { ops_->linear_backward_input(up, wide, weight, dnarrow); });
    add_multiplication("MLP, dW", up, [=, this] {
      ops_->linear_backward_weight(up, narrow, wide, dweight, Write::overwrite);
    });
    add_multiplication("MLP, dW and dbias", up, [=, this] {
      ops_->linear_backward_parameters(up, narrow, wide, dweight, dbias);
    });
    add_multiplication("MLP, dx through GELU", down, [=, this] {
      ops_->linear_backward_input(down, narrow, weight, dwide);
      ops_->gelu_backward({down.rows, down.in, kBf16}, wide, dwide, again, dbias);
    });
    add_multiplication("MLP, dx through GELU, whose output is kept", down, [=, this] {
      ops_->linear_backward_input(down, narrow, weight, dwide);
      ops_->gelu_backward({down.rows, down.in, kBf16}, wide, dwide, View(), dbias);
    });
  }

  /// The head of GPT-2 for the rows of logits that a device has at a time of 32 sequences of 1024,
  /// with products of the vocabulary's 50257 columns and of 50304.
  void add_head() {
    constexpr auto kBf16 = DType::bf16;
    constexpr std::int64_t kVocabulary = 50257;
    const std::int64_t padded = VocabularyParallelHead::padded_columns(device_, kVocabulary);
    const std::int64_t rows =
        VocabularyParallelHead::piece_rows(device_.piece_sizes(), 32 * 1024, padded, kBf16);
    constexpr std::int64_t kWidth = 768;
    const View x = random(rows * kWidth, kBf16);
    const View weight = random(padded * kWidth, kBf16);
    const View logits = random(rows * padded, kBf16);
    const View dx = take(rows * kWidth, kBf16);
    const View dweight = take(padded * kWidth, DType::fp32);
    for (const std::int64_t columns : {kVocabulary, padded}) {
      LinearShape shape{rows, kWidth, columns, WeightLayout::out_in, kBf16, DType::fp32};
      shape.out_stride = padded;
      ops_->prepare(shape, Ops::LinearUse::training);
      const View w = weight.slice(0, columns * kWidth);
      const View dw = dweight.slice(0, columns * kWidth);
      const auto name = [&](const char* what) {
        return fmt::format("head of {}, {}", columns, what);
      };
      add_multiplication(name("logits"), shape,
                         [=, this] { ops_->linear_forward(shape, x, w, View(), logits); });
      add_multiplication(name("dx"), shape,
                         [=, this] { ops_->linear_backward_input(shape, logits, w, dx); });
      add_multiplication(name("dW"), shape, [=, this] {
        ops_->linear_backward_weight(shape, x, logits, dw, Write::overwrite);
      });
    }
    const View targets = take(rows, DType::i32);
    device_.kernels().zero(compute(), targets);
    const View losses = take(rows, DType::fp64);
    cases_.push_back({"cross-entropy, backward", kBf16,
                      4.0 * static_cast<double>(rows * kVocabulary), 0, [=, this] {
                        ops_->cross_entropy_backward({rows, kVocabulary, kBf16, 0, padded}, logits,
                                                     targets, 1, losses);
                      }});
  }

  Device& device_;
  std::unique_ptr<Ops> ops_;
  std::vector<Buffer> buffers_;
  View random_;
  std::vector<Case> cases_;
};

double rate_of(const Case& each, double seconds) {
  return (each.bytes > 0 ? each.bytes : each.flop * 1e-3) * 1e-9 / seconds;
}

/// Every case beside the copy, or the product of its type, of the same run; returns the TFLOP/s of
/// the product in bf16.
double measure_cases(Device& device, Report& report) {
  Cases cases(device);
  if (!cases.note().empty()) report.note(cases.note());
  const std::vector<double> seconds = cases.measure();
  const auto rate_named = [&](const std::string& name, DType dtype) {
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      const Case& each = cases.all()[i];
      if (each.name == name && each.dtype == dtype) return rate_of(each, seconds[i]);
    }
    return 0.0;
  };
  const double copy = rate_named("copy", DType::fp32);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Case& each = cases.all()[i];
    const double rate = rate_of(each, seconds[i]);
    report.add({.section = "gpu",
                .name = each.name,
                .bytes = static_cast<std::int64_t>(each.bytes),
                .dtype = std::string(name_of(each.dtype)),
                .value = rate,
                .best = rate,
                .unit = each.bytes > 0 ? "GB/s" : "TFLOP/s",
                .limit = each.bytes > 0 ? copy : rate_named("product", each.dtype)});
  }
  return rate_named("product", DType::bf16);
}

/// Whole steps of GPT-2 124M in bf16.
void measure_steps(Device& device, double product, Report& report) {
  constexpr int kSteps = 5;
  const TrainConfig config =
      make_config({.batch = 32, .sequence = 1024, .overrides = {"run.device=cuda"}});
  local::run(1, [&](Communicator& communicator) {
    Stepper stepper(config, communicator, device);
    if (!stepper.note().empty()) report.note(stepper.note());
    stepper.seconds(2);
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) times.push_back(stepper.seconds(kSteps) / kSteps);
    const double seconds = summary(times).median;
    const auto tokens = static_cast<double>(config.tokens_per_step());
    const double rate = tokens * flop_per_token(config) * 1e-12 / seconds;
    report.add({.section = "gpu",
                .name = "GPT-2 124M, 32 x 1024",
                .dtype = "bf16",
                .value = rate,
                .best = rate,
                .unit = "TFLOP/s",
                .limit = product});
    report.note(fmt::format("GPT-2 124M: {:.0f} tokens/s", tokens / seconds));
  });
}

/// What the first GPU does, beside its own copy and product.
class GpuSection final : public Section {
 public:
  std::string name() const override { return "gpu"; }
  std::string summary() const override {
    return "the GPU's kernels and a training step, against its copy and product rates";
  }
  void run(Context& context) override {
    context.alone([&] {
      const auto device = cuda::open();
      const double product = measure_cases(*device, context.report());
      measure_steps(*device, product, context.report());
    });
  }
};

}  // namespace

std::unique_ptr<Section> gpu_section() { return std::make_unique<GpuSection>(); }

}  // namespace zero::bench
