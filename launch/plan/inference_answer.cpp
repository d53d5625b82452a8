// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/inference_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "inference/model_folder.h"
#include "launch/plan/model_choice.h"
#include "launch/process/quantity.h"
#include "launch/train/plan.h"

namespace zero {
namespace {

/// Ranks that answer together: a GPU answers alone.
int world_of(const Machine& machine) {
  return machine.kind == DeviceKind::cuda ? 1 : machine.world();
}

/// Dtype and format of the weights.
using Weights = std::pair<DType, std::string>;

std::vector<Weights> weights_of(const InferenceQuestion& question) {
  std::vector<std::string> formats = question.weights;
  if (formats.empty()) {
    formats = {"dtype", "int8", "nf4", "q4"};
    const bool codes =
        !question.folder.empty() && stored_format(question.folder) != WeightFormat::plain;
    if (codes) formats = {""};  // no other can be made of them
  }
  std::vector<Weights> all;
  for (const std::string& format : formats) {
    std::vector<DType> dtypes = question.dtypes;
    if (dtypes.empty()) dtypes = {DType::bf16};
    if (question.dtypes.empty() && format == "dtype") {
      dtypes = {DType::fp32, DType::bf16, DType::fp16};
    }
    for (const DType dtype : dtypes) all.emplace_back(dtype, format);
  }
  return all;
}

/// Tensor ranks, and copies of the model: one that ranks share, or one of each tensor group.
std::vector<MeshShape> shapes_of(const InferenceQuestion& question) {
  const int world = world_of(question.machine);
  std::vector<MeshShape> all;
  for (int tensor = 1; tensor <= world; ++tensor) {
    const bool asked = question.tensors.empty() || std::ranges::count(question.tensors, tensor) > 0;
    if (world % tensor != 0 || !asked || !can_cut(question.model, tensor)) continue;
    const int groups = world / tensor;
    all.push_back({.replicate = groups, .shard = 1, .tensor = tensor});
    if (groups > 1) all.push_back({.replicate = 1, .shard = groups, .tensor = tensor});
  }
  ZERO_CHECK(!all.empty(),
             "--tensor {}: expected divisors of {} that leave each of the model's {} heads and {} "
             "intermediate columns a share{}",
             fmt::join(question.tensors, ","), counted(world, "rank"), question.model.heads,
             question.model.intermediate,
             question.machine.kind == DeviceKind::cuda ? "; a GPU answers alone" : "");
  return all;
}

InferenceRow planned_row(const InferenceQuestion& question, const Weights& weights,
                         const MeshShape& shape) {
  InferenceRow row{.flags = question.flags};
  GenerateFlags& flags = row.flags;
  flags.dtype = name_of(weights.first);
  flags.weights = weights.second;
  flags.tensor = shape.tensor;
  flags.replicate = shape.replicate;
  flags.plan = true;
  if (flags.weights == "dtype") flags.keep = {};
  AnswerNeeds needs{.flags = flags,
                    .folder = question.folder,
                    .shape = &question.model,
                    .dealt = AnswerNeeds::Dealt::to_each,
                    .world = world_of(question.machine),
                    .threads = question.threads,
                    .device = question.machine.kind,
                    .available = question.machine.budget(),
                    .tell = [](const std::string& /*line*/) {}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(flags.requests); ++i) {
    needs.requests.push_back({.answer = question.tokens[i % question.tokens.size()] - 1});
  }
  try {
    row.plan = plan_answers(needs);
    row.most_requests =
        requests_within(row.plan.decoder, row.plan.options, row.plan.ranks, row.plan.limit);
  } catch (const Error& error) {
    row.refusal = error.what();
  }
  return row;
}

constexpr const char* kRow = "{:<16} {:<15} {} {:>10}  {:<38} {:>8}\n";

std::string row_line(const InferenceRow& row) {
  if (!row.refusal.empty()) {
    return fmt::format("{:<16} tensor {:<8} refused: {}\n", row.flags.weights, row.flags.tensor,
                       row.refusal);
  }
  const std::int64_t bytes = row.plan.of_device();
  const std::int64_t left = row.plan.limit - bytes;
  return fmt::format(kRow, weights_text(row.plan.options), row.plan.ranks.shape.text(),
                     memory_cells(row.plan.memory), size_text(bytes),
                     left >= 0 ? fmt::format("fits, {} free", size_text(left))
                               : fmt::format("short {}; {}", size_text(-left), row.largest_text()),
                     row.most_requests);
}

/// Of the rows, none of which fits: what the one that holds most requests holds.
std::string shortfall_line(const InferenceAnswer& answer) {
  const auto& rows = answer.rows;
  const auto most = std::ranges::max_element(rows, {}, &InferenceRow::most_requests);
  if (most->most_requests == 0) {
    return "no row fits, nor one request in any; shorter --tokens or more memory help, on CPUs "
           "also more ranks, which share weights, and --offload-weights\n";
  }
  return fmt::format("no row fits; {} holds {}: fewer --requests, shorter --tokens{} help\n",
                     weights_text(most->plan.options), counted(most->most_requests, "request"),
                     answer.question.flags.cache_dtype == "int8" ? "" : " or --cache-dtype int8");
}

nlohmann::ordered_json row_json(const InferenceRow& row) {
  if (!row.refusal.empty()) {
    return {{"dtype", row.flags.dtype},
            {"weights", row.flags.weights},
            {"tensor", row.flags.tensor},
            {"refusal", row.refusal}};
  }
  const InferenceMemory& memory = row.plan.memory;
  const std::int64_t bytes = row.plan.of_device();
  return {{"dtype", name_of(row.plan.options.dtype)},
          {"weights", name_of(row.plan.options.weights)},
          {"mesh", mesh_json(row.plan.ranks.shape)},
          {"bytes", bytes},
          {"fits", row.fits()},
          {"short_bytes", std::max<std::int64_t>(0, bytes - row.plan.limit)},
          {"memory",
           {{"weights", memory.weights},
            {"windows", memory.windows},
            {"cache", memory.cache},
            {"activations", memory.activations},
            {"exchange", memory.exchange}}},
          {"file", memory.file},
          {"most_requests", row.most_requests}};
}

}  // namespace

std::string InferenceRow::largest_text() const {
  const InferenceMemory& m = plan.memory;
  const std::array<std::pair<std::int64_t, const char*>, 5> parts{{{m.weights, "weights"},
                                                                   {m.windows, "windows"},
                                                                   {m.cache, "cache"},
                                                                   {m.activations, "activations"},
                                                                   {m.exchange, "exchange"}}};
  const auto& [bytes, name] = std::ranges::max(parts);
  return fmt::format("{} {}", name, size_text(bytes));
}

bool InferenceAnswer::fits() const { return std::ranges::any_of(rows, &InferenceRow::fits); }

InferenceAnswer answer_inference(const InferenceQuestion& question) {
  check(question.machine);
  for (const std::int64_t tokens : question.tokens) {
    ZERO_CHECK(tokens >= 2 && tokens <= question.model.context,
               "--tokens is {}, expected 2 to the model's context of {}", tokens,
               question.model.context);
  }
  InferenceAnswer answer{.question = question};
  for (const Weights& weights : weights_of(question)) {
    for (const MeshShape& shape : shapes_of(question)) {
      answer.rows.push_back(planned_row(question, weights, shape));
    }
  }
  return answer;
}

std::string text_of(const InferenceAnswer& answer) {
  const InferenceQuestion& question = answer.question;
  const Machine& machine = question.machine;
  const bool gpu = machine.kind == DeviceKind::cuda;
  std::string text = fmt::format(
      "{}: {} parameters; {} of {} tokens at once{}; cache of {} in blocks of {} tokens; {}\n\n",
      question.model_text, question.model.parameter_count(),
      counted(question.flags.requests, "request"), fmt::join(question.tokens, ", "),
      gpu ? "" : ", of each tensor group",
      question.flags.cache_dtype == "int8" ? "int8" : "the activations' dtype",
      question.flags.block_tokens, machine.text());
  const auto filed = std::ranges::find_if(
      answer.rows, [](const InferenceRow& row) { return row.plan.memory.file > 0; });
  const bool files = filed != answer.rows.end();
  text += fmt::format(kRow, "", "ranks r x s x t",
                      memory_header(files ? filed->plan.memory : InferenceMemory{}), "memory", "",
                      "at most");
  for (const InferenceRow& row : answer.rows) text += row_line(row);
  if (!answer.fits()) text += shortfall_line(answer);
  text += fmt::format(
      "\nas zero_generate --plan: bytes of the first rank (no other takes more), planned by the "
      "engine itself; memory: what the limit bounds{}.{}\nat most: requests of the longest kind "
      "that the memory holds at once, of {} that may be asked for{}\n",
      left_out_text(machine),
      files ? fmt::format("\nfile: a rank's part of the blocks, in {}, beside memory; each pass "
                          "reads it once.",
                          question.flags.offload.folder)
            : "",
      InferenceOptions::kMostRows,
      gpu ? "; a GPU answers alone, so several hold as much each"
          : "; r: copies of the model, s: ranks that share its weights, t: that compute together");
  return text;
}

nlohmann::ordered_json json_of(const InferenceAnswer& answer) {
  const InferenceQuestion& question = answer.question;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const InferenceRow& row : answer.rows) rows.push_back(row_json(row));
  return {{"model", question.model_text},
          {"parameters", question.model.parameter_count()},
          {"requests", question.flags.requests},
          {"tokens", question.tokens},
          {"machine", json_of(question.machine)},
          {"planned_with", planned_with_text(question.machine)},
          {"not_counted", nlohmann::ordered_json::array({not_counted_text(question.machine)})},
          {"rows", rows}};
}

}  // namespace zero
