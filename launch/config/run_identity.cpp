// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace zero {
namespace {

constexpr const char* kData = "data.train";
constexpr const char* kOptimizer = "optimizer.type";
constexpr std::array kLengths{"scheduler.params.total_num_steps",
                              "scheduler.params.decay_num_steps"};
constexpr const char* kMomentum = "optimizer.params.momentum";
/// A key that is left out of the identity if it has this value, as if it were not set: checkpoints
/// without it mean the same.
constexpr const char* kMoments = "optimizer.params.moments";
constexpr const char* kPlainMoments = "fp32";
/// Names and shapes of the states, or what they mean, follow from these.
constexpr std::array<std::string_view, 12> kShapes{
    "model.family",   "model.layers",     "model.width",      "model.heads",
    "model.kv_heads", "model.head_width", "model.context",    "model.vocabulary",
    "model.head",     "model.qkv_bias",   "model.head_norms", "model.intermediate"};

/// Sections of which every key counts, except those that only name where sizes come from.
constexpr std::array<std::string_view, 4> kSections{"model.", "optimizer.", "scheduler.", "fp16."};
constexpr std::array<std::string_view, 2> kSources{"model.name", "model.hf"};
constexpr std::array<std::string_view, 9> kKeys{"data.sequence_length",
                                                "data.shuffle",
                                                "run.seed",
                                                "run.sums",
                                                "reduction",
                                                "train_batch_size",
                                                "gradient_clipping",
                                                "bf16.enabled",
                                                "data_types.grad_accum_dtype"};

/// Keys that count only in an fp16 run, and those of a loss scale of either kind.
constexpr std::string_view kFp16 = "fp16.";
constexpr const char* kEnabled = "fp16.enabled";
constexpr const char* kStaticScale = "fp16.loss_scale";

/// Whether the run has a meaning for a key of the section fp16.
bool counts_in_fp16(const Configuration& values, const std::string& path) {
  if (!values.boolean(kEnabled)) return false;
  return path == kEnabled || path == kStaticScale || values.number(kStaticScale) == 0;
}

/// The number of moments follows from whether there is momentum.
bool has_momentum(const nlohmann::ordered_json& identity) {
  const auto found = identity.find(kMomentum);
  return found != identity.end() && found->is_number() && found->get<double>() != 0;
}

/// What to do about `keys`, in which two identities differ.
std::string way_out(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& current,
                    std::span<const std::string> keys) {
  const auto among = [&](std::string_view key) { return std::ranges::count(keys, key) > 0; };
  if (std::ranges::any_of(kShapes, among)) {
    return "a checkpoint of another model cannot go on: give the checkpoint's values, or start "
           "afresh with another run.checkpoint.folder";
  }
  if (among(kOptimizer) || (among(kMomentum) && has_momentum(saved) != has_momentum(current))) {
    return "the moments of another optimizer cannot go on: give the checkpoint's values, or start "
           "with its weights: run.init=CHECKPOINT/weights and another run.checkpoint.folder";
  }
  return fmt::format(
      "give the checkpoint's values, or name {} in run.resume_changes to go on with this run's, or "
      "start afresh with another run.checkpoint.folder",
      fmt::join(keys, ", "));
}

bool decides(const Option& option) {
  if (option.handling != Handling::honoured) return false;
  if (std::ranges::count(kSources, option.path) > 0) return false;
  return std::ranges::count(kKeys, option.path) > 0 ||
         std::ranges::any_of(
             kSections, [&](std::string_view section) { return option.path.starts_with(section); });
}

std::string shown(const nlohmann::ordered_json& identity, const std::string& key) {
  if (!identity.contains(key)) {
    return key == kMoments ? nlohmann::json(kPlainMoments).dump() : "not set";
  }
  std::string text =
      identity.at(key).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return text.size() > 200 ? text.substr(0, 197) + "..." : text;
}

/// In the order of `saved`, then of `current`. Numbers are compared by value: 0 is 0.0.
std::vector<std::string> differing_keys(const nlohmann::ordered_json& saved,
                                        const nlohmann::ordered_json& current) {
  const nlohmann::ordered_json none;
  std::vector<std::string> keys;
  for (const auto* identity : {&saved, &current}) {
    for (const auto& [key, value] : identity->items()) {
      if (saved.value(key, none) == current.value(key, none)) continue;
      if (std::ranges::count(keys, key) == 0) keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace

std::vector<std::string> identity_keys() {
  std::vector<std::string> keys{kData};
  for (const Option& option : option_table()) {
    if (decides(option)) keys.push_back(option.path);
  }
  return keys;
}

nlohmann::ordered_json identity_of(const Configuration& values,
                                   const std::vector<std::string>& data) {
  nlohmann::ordered_json identity{{kData, data}};
  for (const Option& option : option_table()) {
    if (!decides(option) || values.is_null(option.path)) continue;
    if (option.path.starts_with(kFp16) && !counts_in_fp16(values, option.path)) continue;
    if (option.path == kMoments && values.text(kMoments) == kPlainMoments) continue;
    identity[option.path] = values.at(option.path).value;
  }
  return identity;
}

std::vector<std::string> keys_of_length(const Configuration& values) {
  std::vector<std::string> keys;
  for (const char* key : kLengths) {
    if (!values.is_null(key) && !values.given(key)) keys.emplace_back(key);
  }
  return keys;
}

std::string mark_of(const nlohmann::ordered_json& identity, const std::string& begin) {
  nlohmann::ordered_json counted = identity;
  if (!begin.empty()) counted["run.init"] = begin;
  for (const char* key : kLengths) counted.erase(key);
  const std::string text =
      counted.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

bool same_identity(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& current,
                   std::span<const std::string> except) {
  return std::ranges::all_of(differing_keys(saved, current), [&](const std::string& key) {
    return std::ranges::count(except, key) > 0;
  });
}

std::vector<IdentityChange> changed_identity(const nlohmann::ordered_json& saved,
                                             const nlohmann::ordered_json& current,
                                             std::span<const std::string> changes) {
  std::vector<std::string> refused;
  std::vector<std::string> refused_keys;
  std::vector<IdentityChange> changed;
  for (const std::string& key : differing_keys(saved, current)) {
    const std::string text = fmt::format("{} is {} in the checkpoint and {} in this run", key,
                                         shown(saved, key), shown(current, key));
    if (std::ranges::count(changes, key) > 0) {
      changed.push_back({key, text});
    } else {
      refused_keys.push_back(key);
      refused.push_back(text);
    }
  }
  ZERO_CHECK(refused.empty(), "the checkpoint is of another run: {}; {}", fmt::join(refused, "; "),
             way_out(saved, current, refused_keys));
  return changed;
}

}  // namespace zero
