// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "architecture/family.h"
#include "bench/product_rate.h"
#include "bench/random_weights.h"
#include "bench/section.h"
#include "bench/timing.h"
#include "inference/inference_model.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {
namespace {

using Part = InferenceModel::Part;

/// A model with sequences of equal length in its cache.
class Answering {
 public:
  Answering(Device& device, const DecoderShape& config, const InferenceOptions& options)
      : model_(device, config, options) {
    fill_with_random_weights(model_);
  }

  /// Reads `tokens` of one sequence from its start; returns the seconds.
  double read(std::int64_t tokens) {
    std::vector<std::uint32_t> prompt(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] =
          static_cast<std::uint32_t>(i * 31 % static_cast<std::size_t>(model_.vocabulary()));
    }
    const std::int64_t slot = model_.cache().open();
    const double seconds = seconds_of([&] {
      auto rest = std::span<const std::uint32_t>(prompt);
      while (!rest.empty()) {
        const auto most = static_cast<std::size_t>(model_.options().rows);
        const Part part{slot, rest.first(std::min(rest.size(), most)), 0};
        model_.forward(std::span(&part, 1));
        rest = rest.subspan(part.tokens.size());
      }
    });
    model_.cache().close(slot);
    return seconds;
  }
  /// Seconds of a pass of one token of each of `sequences` sequences, behind `before` others.
  double decode(std::int64_t sequences, std::int64_t before, int passes) {
    const std::vector<std::uint32_t> token{1};
    std::vector<Part> parts;
    for (std::int64_t i = 0; i < sequences; ++i) {
      // Of their own tokens: none shares another's blocks.
      const std::vector<std::uint32_t> first(static_cast<std::size_t>(before),
                                             static_cast<std::uint32_t>(2 + i));
      const std::int64_t slot = model_.cache().open();
      const Part part{slot, first, 0};
      model_.forward(std::span(&part, 1));
      parts.push_back({slot, token, 1});
    }
    const double seconds = seconds_of([&] {
      for (int i = 0; i < passes; ++i) model_.forward(parts);
    });
    for (const Part& part : parts) model_.cache().close(part.slot);
    return seconds / passes;
  }
  /// Bytes of a layer's cache for one position of a sequence.
  double cache_bytes() {
    const CacheShape& shape = model_.cache().shape();
    return static_cast<double>(shape.block_bytes()) / static_cast<double>(shape.block_tokens);
  }
  /// Bytes of the matrices: what a pass reads, but for the cache, and norms, biases and positions,
  /// which are few. GPT-2's head is its embedding.
  double matrix_bytes() {
    return static_cast<double>(
        model_.device().ledger().snapshot().labels.at("parameters/matrices"));
  }

 private:
  InferenceModel model_;
};

/// Answers of one process: tokens of one and of many sequences against the memory's rate over the
/// bytes of the weights as they are stored and of the cache, prompts against the rate of products
/// in the dtype of activations.
class Inference final : public Section {
 public:
  std::string name() const override { return "inference"; }
  std::string summary() const override {
    return "generating: tokens of one and of 16 sequences, and reading a prompt, against memory "
           "and products";
  }
  void add_options(CLI::App& command) override {
    command
        .add_option("--inference-weights", weights_,
                    "fp32, bf16, fp16; int8, nf4, q4: beside activations in bf16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16", "int8", "nf4", "q4"}))
        ->capture_default_str();
    command.add_option("--inference-device", device_, "cpu, or cuda: the first GPU")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->capture_default_str();
    command.add_option("--inference-rounds", rounds_, "turns of each measurement and its limit")
        ->capture_default_str();
  }
  void run(Context& context) override {
    context.alone([&] {
      for (const std::string& weights : weights_) measure(context, weights);
    });
  }

 private:
  static constexpr std::int64_t kPrompt = 512;
  static constexpr std::int64_t kBefore = 64;
  static constexpr std::int64_t kSequences = 16;
  static constexpr int kPasses = 8;

  /// The limits of the machine in the round under way.
  using Limits = std::function<MachineLimits()>;
  struct Measured {
    Turns one{}, many{}, prompt{};
  };

  static bool coded(const std::string& weights) {
    return weights == "int8" || weights == "nf4" || weights == "q4";
  }

  void measure(Context& context, const std::string& weights) const {
    const DType dtype = coded(weights) ? DType::bf16 : dtype_from_name(weights);
    std::string name = "gpt2-124m";
    std::string remark;
    Measured measured;
    if (device_ == "cuda") {
      const auto device = cuda::open();
      name += " on a GPU";
      const MachineLimits limits = measure_limits(dtype, *device);
      measured = measure_on(*device, dtype, weights, [&] { return limits; });
    } else {
      const auto device = cpu::open({.threads = context.threads()});
      MemoryProbe memory(context.threads());
      ProductRate products(dtype, context.threads());
      remark = products.remark();
      memory.pass();
      measured = measure_on(*device, dtype, weights, [&] {
        memory.pass();
        const double read = memory.seconds().read.back();
        return MachineLimits{.products = products.sample(1),
                             .memory = static_cast<double>(MemoryProbe::array_bytes()) / read};
      });
    }
    add(context.report(), name + ", a token of 1 sequence", weights, measured.one);
    add(context.report(), name + ", a token of each of 16", weights, measured.many);
    add(context.report(), fmt::format("{}, a prompt of {}{}", name, kPrompt, remark), weights,
        measured.prompt);
  }

  Measured measure_on(Device& device, DType dtype, const std::string& weights,
                      const Limits& limits_now) const {
    const DecoderShape config = decoder_shape({{"name", "gpt2-124m"}});
    Answering answering(device, config,
                        {.dtype = dtype,
                         .weights = weight_format_from_name(coded(weights) ? weights : "dtype"),
                         .requests = kSequences,
                         .request_tokens = kPrompt + 64,
                         .rows = InferenceOptions::kMostRows});
    const double bytes = answering.matrix_bytes();
    // Of the positions before the middle pass, and its own.
    const double cached = (kBefore + (kPasses + 1) / 2.0) * answering.cache_bytes() *
                          static_cast<double>(config.layers);
    // Two operations a parameter of the blocks, and causal attention.
    const auto blocks = static_cast<double>(config.layers * config.block_matrices());
    const double flop =
        2 * blocks + 2.0 * static_cast<double>(config.layers * kPrompt * config.attended_width());
    const double head = 2.0 * static_cast<double>(config.vocabulary * config.width);
    Measured measured;
    for (int round = 0; round <= rounds_; ++round) {
      const MachineLimits limits = limits_now();
      measured.one.limits.push_back(limits.memory / (bytes + cached));
      measured.many.limits.push_back(
          std::min(kSequences * limits.memory / (bytes + kSequences * cached),
                   limits.products / (2 * blocks + head)));
      measured.prompt.limits.push_back(limits.products / flop);
      if (round == rounds_) break;
      measured.one.values.push_back(1 / answering.decode(1, kBefore, kPasses));
      measured.many.values.push_back(kSequences / answering.decode(kSequences, kBefore, kPasses));
      measured.prompt.values.push_back(kPrompt / answering.read(kPrompt));
    }
    return measured;
  }

  static void add(Report& report, std::string name, const std::string& weights,
                  const Turns& turns) {
    const double value = median_rate(turns.values);
    report.add({.section = "inference",
                .name = std::move(name),
                .dtype = weights,
                .value = value,
                .best = *std::max_element(turns.values.begin(), turns.values.end()),
                .unit = "tokens/s",
                .limit = value / turns.share()});
  }

  std::vector<std::string> weights_{"fp32", "bf16", "int8", "nf4", "q4"};
  std::string device_ = "cpu";
  int rounds_ = 5;
};

}  // namespace

std::unique_ptr<Section> inference_section() { return std::make_unique<Inference>(); }

}  // namespace zero::bench
