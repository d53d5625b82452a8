// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/checked_math.h"
#include "base/message_text.h"
#include "launch/plan/model_states.h"
#include "launch/process/quantity.h"
#include "launch/train/memory_fit.h"
#include "model/decoder_memory.h"

namespace zero {
namespace {

/// The figures, by the same formulas as the closed forms, and what each leaves out.
struct Estimate {
  std::string title;
  std::vector<std::string> lines;
  std::string leaves_out;
};

constexpr double kGiga = 1e9;
constexpr double kSeven = 7e9;

std::string gb_text(double bytes) { return fmt::format("{:.1f} GB", bytes / kGiga); }
std::string gib_text(double bytes) { return fmt::format("{:.3f} GiB", bytes / 0x1.0p30); }

/// Parameters, gradients and both moments in one type, as introductions add them up.
std::string one_type(std::string_view name, double bytes, std::string_view why) {
  const double each = kSeven * bytes / kGiga;
  return fmt::format("{:<6} {:>3.0f} + {:.0f} + {:.0f} = {:.0f} GB{}", name, each, each, 2 * each,
                     4 * each, why);
}

Estimate llama_estimate() {
  const std::int64_t exact = decoder_shape({{"name", "llama-7b"}}).parameter_count();
  const auto all = static_cast<double>(model_states(exact, 0, 1).total());
  const auto [parameters, gradients, optimizer] =
      model_states(static_cast<std::int64_t>(kSeven), 0, 1);
  const double masters = 4 * kSeven;
  return {
      "LLaMA 7B with Adam: parameters + gradients + two moments",
      {one_type("fp32", 4, ""),
       one_type("fp16", 2,
                ": not offered; an update below 2^-11 of its parameter would be lost, so masters "
                "stay fp32"),
       one_type("int8", 1,
                ": not offered; 255 levels hold neither gradients nor masters (8-bit moments are)"),
       fmt::format("mixed  parameters in two types {:.0f}, gradients {:.0f}, moments {:.0f} = "
                   "{:.0f} GB",
                   (static_cast<double>(parameters) + masters) / kGiga,
                   static_cast<double>(gradients) / kGiga,
                   (static_cast<double>(optimizer) - masters) / kGiga,
                   static_cast<double>(parameters + gradients + optimizer) / kGiga),
       fmt::format("exact  {} parameters x 16 B = {} ({:.2f} GiB)", exact, gb_text(all),
                   all / 0x1.0p30)},
      "activations, gathered windows, buffers of sums, and what CUDA takes; 7B is 6.7"};
}

Estimate small_estimate() {
  const double one = 88.44e6 * 4;
  const double printed = 88.44 * 4 / 1024;
  return {"88.44M parameters in fp32",
          {"parameters                     " + gib_text(one),
           "with gradients and a momentum  " + gib_text(3 * one),
           "with Adam's two moments        " + gib_text(4 * one),
           fmt::format("introductions print {:.3f}, {:.3f} and {:.2f}: 88.44 x 4 / 1024, millions "
                       "of bytes taken for MiB",
                       printed, 3 * printed, 4 * printed)},
          "activations, which are larger here (see below)"};
}

Estimate stages_estimate(const ExplainQuestion& question) {
  Estimate estimate{
      fmt::format("{} parameters over {}, bf16 with fp32 masters and Adam, a rank",
                  question.parameters, counted(question.ranks, "rank")),
      {"stage    parameters     gradients     optimizer           all   elements of P, G, O"},
      "padding (at most 64 elements a parameter and rank), windows of stage 3, partial sums of "
      "accumulation, activations, buffers"};
  for (int stage = 0; stage <= 3; ++stage) {
    const ModelStates states = model_states(question.parameters, stage, question.ranks);
    const auto cell = [](std::int64_t bytes) { return gb_text(static_cast<double>(bytes)); };
    estimate.lines.push_back(fmt::format(
        "{:<5} {:>13} {:>13} {:>13} {:>13}   {}, {}, {}", stage, cell(states.parameters),
        cell(states.gradients), cell(states.optimizer), cell(states.total()), states.parameters / 2,
        states.gradients / 2, states.optimizer / 12));
  }
  return estimate;
}

Estimate activations_estimate() {
  constexpr std::int64_t kLayers = 12;
  const DecoderShape model = decoder_shape(
      {{"layers", kLayers}, {"width", 768}, {"heads", 12}, {"context", 512}, {"vocabulary", 3894}});
  const DecoderRows rows{
      .all = 2048, .own = 2048, .sequence = 512, .logits = 1024, .logit_columns = 3904};
  const auto bytes = [&](RecomputePlan plan) {
    plan.outputs = BlockOutputs::again;
    return DecoderMemory(model, rows, DType::fp32, plan).bytes();
  };
  const std::int64_t none = bytes({});
  Estimate estimate{
      fmt::format("activations of 12 blocks of GPT-2's width, {} parameters, 4 x 512 tokens, fp32",
                  model.parameter_count()),
      {"kept whole                  " + size_text(none)},
      "the scratch of operations; on a GPU also outputs of norms and GELU, kept by default"};
  for (const auto& [name, plan] :
       {std::pair{"interval 4: blocks 0, 4, 8", RecomputePlan::full(kLayers, 4)},
        {"full: every block", RecomputePlan::full(kLayers)}}) {
    const double flop = recomputed_flop(model, rows.sequence, plan);
    estimate.lines.push_back(fmt::format("{:<27} {}, {} less; {:.1f} % of FLOP are repeated", name,
                                         size_text(bytes(plan)), size_text(none - bytes(plan)),
                                         100 * flop / model.flop_per_token(rows.sequence)));
  }
  return estimate;
}

Estimate precision_estimate() {
  const std::int64_t count = decoder_shape({{"name", "llama-7b"}}).parameter_count();
  Estimate estimate{fmt::format("weights of LLaMA 7B by bytes of an element, {} elements", count),
                    {},
                    "scales of codes (0.5 to 6 % here), embedding and head that stay unquantized, "
                    "cache and activations"};
  for (const auto& [name, size] : {std::pair{"fp32, 4", 4.0},
                                   {"fp16 and bf16, 2", 2.0},
                                   {"int8, 1", 1.0},
                                   {"4 bits, 0.5", 0.5}}) {
    estimate.lines.push_back(
        fmt::format("{:<17} {}", name, both_units(static_cast<double>(count) * size)));
  }
  return estimate;
}

Estimate cache_estimate() {
  const DecoderShape model = decoder_shape({{"name", "llama-7b"}});
  const std::vector<std::int64_t> lengths{100, 300, 700, 2000};
  const std::int64_t whole = std::ssize(lengths) * std::ranges::max(lengths);
  std::int64_t paged = 0;
  for (const std::int64_t length : lengths) paged += round_up(length, 16);
  const auto of = [&](std::int64_t tokens) {
    return both_units(
        static_cast<double>(2 * model.layers * model.kv_heads * model.head_width * tokens * 2));
  };
  return {"key/value cache of LLaMA 7B in fp16: 2 x layers x kv heads x head width x tokens x 2 B",
          {fmt::format("2 x {} x {} x {} x 2048 x 2 B = {}", model.layers, model.kv_heads,
                       model.head_width, of(2048)),
           fmt::format("sequences of 100, 300, 700 and 2000 tokens: contiguous {}, in blocks of 16 "
                       "tokens {}: {:.0f} % less",
                       of(whole), of(paged),
                       100 * (1 - static_cast<double>(paged) / static_cast<double>(whole)))},
          "weights, block tables, activations; grouped heads (Llama 3: 8 of 32) divide it by 4"};
}

}  // namespace

std::string explained(const ExplainQuestion& question) {
  std::string text =
      "GB is 10^9 bytes, GiB 2^30. What a run takes is planned: zero_plan --model, zero_train "
      "--plan.\n";
  for (const Estimate& estimate :
       {llama_estimate(), small_estimate(), stages_estimate(question), activations_estimate(),
        precision_estimate(), cache_estimate()}) {
    text += "\n" + estimate.title + "\n";
    for (const std::string& line : estimate.lines) text += "  " + line + "\n";
    text += "  leaves out: " + estimate.leaves_out + "\n";
  }
  return text;
}

}  // namespace zero
