// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/error.h"
#include "launch/config/train_config.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

/// The keys of the section but `hf`, without "model.".
const std::vector<std::string>& section_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Option& option : option_table()) {
      if (!option.path.starts_with("model.") || option.path == "model.hf") continue;
      all.push_back(option.path.substr(std::string_view("model.").size()));
    }
    return all;
  }();
  return keys;
}

nlohmann::json::json_pointer pointer_to(std::string key) {
  std::ranges::replace(key, '.', '/');
  return nlohmann::json::json_pointer("/" + key);
}

/// The section as an object, for its family.
JsonFields section_of(const Configuration& values) {
  nlohmann::json section = nlohmann::json::object();
  for (const std::string& key : section_keys()) {
    if (!values.is_null("model." + key)) section[pointer_to(key)] = values.at("model." + key).value;
  }
  return {std::move(section), values.source(), "model."};
}

/// Fills in the keys that were not given, so that the configuration shows them.
void note(Configuration& values, const DecoderShape& shape, const std::string& source) {
  const nlohmann::json section = shape.family->to_section(shape);
  for (const std::string& key : section_keys()) {
    const std::string path = "model." + key;
    if (!values.is_null(path) || !section.contains(pointer_to(key))) continue;
    values.resolve(path, section[pointer_to(key)], source);
  }
}

DecoderShape from_folder(Configuration& values, const std::string& folder) {
  for (const std::string& key : section_keys()) {
    ZERO_CHECK(!values.given("model." + key),
               "{}: model.{} is given beside model.hf, whose config.json has all of the section; "
               "leave one of them out",
               values.source(), key);
  }
  const DecoderShape shape = read_hf_config(folder);
  const std::string source = folder + (folder.ends_with('/') ? "" : "/") + "config.json";
  values.resolve("model.family", std::string(shape.family->name), source);
  note(values, shape, source);
  return shape;
}

/// The names of the families that have a key, or sizes of that name.
template <typename T>
std::string owners(std::span<const T> Family::*of, std::string_view value) {
  std::string names;
  for (const Family* family : families()) {
    if (std::ranges::find(family->*of, value) == (family->*of).end()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family->name);
  }
  return names;
}

void check_keys(const Configuration& values, const Family& family) {
  for (const std::string& key : section_keys()) {
    const std::string first = key.substr(0, key.find('.'));
    const bool known = first == "family" || first == "name" ||
                       std::ranges::find(family.keys, first) != family.keys.end();
    ZERO_CHECK(known || !values.given("model." + key) || values.is_null("model." + key),
               "{}: model.{} does not belong to model.family \"{}\" but to {}", values.source(),
               key, family.name, owners(&Family::keys, first));
  }
}

DecoderShape from_keys(Configuration& values) {
  const std::string name = values.text("model.name");
  if (std::ranges::none_of(section_keys(),
                           [&](const std::string& key) { return values.given("model." + key); })) {
    throw Refusal(
        fmt::format("{}: model is missing; give a name (\"model\": \"gpt2-124m\"), a Hugging Face "
                    "folder ({{\"hf\": \"FOLDER\"}}) or an object {{family, layers, width, heads, "
                    "context, vocabulary}}",
                    values.source()),
        {"model.hf=FOLDER"});
  }
  const Family& family = family_named(values.text("model.family"));
  ZERO_CHECK(name.empty() || std::ranges::find(family.published, name) != family.published.end(),
             "{}: model.name \"{}\" is a {}, model.family is \"{}\"; leave one out",
             values.source(), name, owners(&Family::published, name), family.name);
  check_keys(values, family);
  JsonFields section = section_of(values);
  const DecoderShape shape = family.from_section(section);
  try {
    shape.validate();
  } catch (const Error& error) {
    fail("{}: model: {}", values.source(), error.what());
  }
  note(values, shape, name.empty() ? fmt::format("default of {}", family.name) : "model " + name);
  return shape;
}

std::vector<std::string> names_of(std::span<const Family* const> all) {
  std::vector<std::string> names;
  for (const Family* family : all) names.emplace_back(family->name);
  return names;
}

std::vector<std::string> published_models() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    names.insert(names.end(), family->published.begin(), family->published.end());
  }
  return names;
}

}  // namespace

DecoderShape make_model_shape(Configuration& values) {
  const std::string folder = values.text("model.hf");
  return folder.empty() ? from_keys(values) : from_folder(values, folder);
}

std::vector<Option> model_options() {
  using enum ValueType;
  return {
      honour("model.name", text, "null", "sizes by name; \"model\": \"gpt2-124m\" is short for it")
          .one_of(published_models()),
      honour("model.hf", text, "null",
             "a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2, Qwen3, Gemma 3): its "
             "config.json gives "
             "all of "
             "this section, its safetensors files the weights unless run.init says otherwise"),
      honour("model.family", text, "\"gpt2\"", "what is computed").one_of(names_of(families())),
      honour("model.layers", integer, "null", "transformer blocks; null: 12 for gpt2").from(1, 1e5),
      honour("model.width", integer, "null", "channels; null: 768 for gpt2").from(1, 1e6),
      honour("model.heads", integer, "null", "attention heads; null: 12 for gpt2").from(1, 1e5),
      honour("model.context", integer, "null", "longest sequence; null: 1024 for gpt2")
          .from(1, 1e7),
      honour("model.vocabulary", integer, "null", "token ids are below it; null: 50257 for gpt2")
          .from(2, 2147483647),
      honour("model.kv_heads", integer, "null",
             "llama: heads of keys and values, a divisor of heads; null: heads")
          .from(1, 1e5),
      honour("model.head_width", integer, "null",
             "llama: elements of a head, even; null: width / heads")
          .from(2, 1e6),
      honour("model.intermediate", integer, "null", "llama: channels inside the MLP").from(1, 1e7),
      honour("model.norm_epsilon", number, "null",
             "llama: added to the mean square in norms; null: 1e-5")
          .from(0, 1),
      honour("model.head", text, "null",
             "llama: a matrix of its own, or the token embedding again; null: separate")
          .one_of({"separate", "tied"}),
      honour("model.qkv_bias", boolean, "null",
             "llama: whether q, k and v have biases, as Qwen2's; null: false"),
      honour("model.head_norms", boolean, "null",
             "llama: whether each head of q and of k has an RMS norm, as Qwen3's; null: false"),
      honour("model.window", integer, "null",
             "llama: positions that a query of a local layer sees, its own included; null: all")
          .from(1, 1e7),
      honour("model.local_layers", text, "null",
             "llama: numbers of the layers that have the window, as \"0-4,6\"; null: all"),
      honour("model.rope_theta", number, "null",
             "llama: base of the rotary embeddings' angles; null: 10000")
          .from(0, 1e12),
      honour("model.local_rope_theta", number, "null",
             "gemma3: the same of its local layers; null: 10000")
          .from(0, 1e12),
      honour("model.score_scale", number, "null",
             "gemma3: that scores of attention are multiplied by; null: 1 / sqrt(head_width)")
          .from(0, 1e6),
      honour("model.rope_scaling.factor", number, "null",
             "llama: Llama 3's slowing of long turns; null: none")
          .from(0, 1e9),
      honour("model.rope_scaling.low_freq_factor", number, "null",
             "turns longer than the original context over it are slowed; null: 1")
          .from(0, 1e9),
      honour("model.rope_scaling.high_freq_factor", number, "null",
             "turns shorter than the original context over it stay; null: 4")
          .from(0, 1e9),
      honour("model.rope_scaling.original_max_position_embeddings", integer, "null",
             "the original context; with factor")
          .from(0, 1e9),
  };
}

}  // namespace zero
