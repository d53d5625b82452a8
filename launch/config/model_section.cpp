// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
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
  if (const Family* of = family_of_published(name); of && !values.given("model.family")) {
    values.resolve("model.family", std::string(of->name), "model " + name);
  }
  const Family& family = family_named(values.text("model.family"));
  ZERO_CHECK(name.empty() || std::ranges::find(family.published, name) != family.published.end(),
             "{}: model.name \"{}\" is a {}, model.family is \"{}\"; leave one out",
             values.source(), name, owners(&Family::published, name), family.name);
  check_keys(values, family);
  JsonFields section = section_of(values);
  const DecoderShape shape = family.from_section(section);
  at_place(values.source() + ": model", [&] { shape.validate(); });
  note(values, shape, name.empty() ? fmt::format("default of {}", family.name) : "model " + name);
  return shape;
}

std::vector<std::string> names_of(std::span<const Family* const> all) {
  std::vector<std::string> names;
  for (const Family* family : all) names.emplace_back(family->name);
  return names;
}

/// The classes of transformers whose folders are read.
std::string hf_classes() {
  std::string names;
  for (const Family* family : families()) {
    for (const Family::HfClass& each : family->hf_classes) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", each.architecture);
    }
  }
  return names;
}

/// The keys of a family's section that are the same for all of its models that do not give them.
nlohmann::json find_defaults(const Family& family) {
  nlohmann::json given = nlohmann::json::object();
  if (!family.has_default_sizes) {
    for (const char* key :
         {"layers", "width", "heads", "context", "vocabulary", "intermediate", "window"}) {
      given[key] = 2;
    }
  }
  JsonFields section(given, "model_options", "model.");
  nlohmann::json defaults = family.to_section(family.from_section(section));
  for (const auto& [key, value] : given.items()) defaults.erase(key);
  for (const char* derived : {"kv_heads", "head_width"}) defaults.erase(derived);
  return defaults;
}

/// The same, found once: every key of the section asks for them.
const nlohmann::json& defaults_of(const Family& family) {
  static const auto all = [] {
    std::map<const Family*, nlohmann::json> of_family;
    for (const Family* each : families()) of_family[each] = find_defaults(*each);
    return of_family;
  }();
  return all.at(&family);
}

/// A key of the section, with the families that it belongs to unless it is of all, and their
/// defaults.
Option key_of(const std::string& key, ValueType type, const std::string& meaning) {
  const std::string first = key.substr(0, key.find('.'));
  std::string defaults;
  bool of_all = true;
  for (const Family* family : families()) {
    of_all = of_all && std::ranges::find(family->keys, first) != family->keys.end();
    const nlohmann::json& values = defaults_of(*family);
    if (!values.contains(key)) continue;
    const nlohmann::json& value = values[key];
    defaults += fmt::format(
        "{}{} for {}", defaults.empty() ? "; null: " : ", ",
        value.is_number_float() ? fmt::format("{:g}", value.get<double>()) : value.dump(),
        family->name);
  }
  const std::string owner = of_all ? "" : owners(&Family::keys, first) + ": ";
  return honour("model." + key, type, "null", owner + meaning + defaults);
}

}  // namespace

DecoderShape make_model_shape(Configuration& values) {
  const std::string folder = values.text("model.hf");
  return folder.empty() ? from_keys(values) : from_folder(values, folder);
}

std::vector<Option> model_options() {
  using enum ValueType;
  return {
      honour("model.name", text, "null",
             "sizes by name, of the family that has them; \"model\": \"gpt2-124m\" is short for it")
          .one_of(published_names()),
      honour("model.hf", text, "null",
             fmt::format("a Hugging Face folder ({}): its config.json gives all of this section, "
                         "its safetensors files the weights unless run.init says otherwise",
                         hf_classes())),
      honour("model.family", text, "\"gpt2\"", "what is computed").one_of(names_of(families())),
      key_of("layers", integer, "transformer blocks").from(1, 1e5),
      key_of("width", integer, "channels").from(1, 1e6),
      key_of("heads", integer, "attention heads").from(1, 1e5),
      key_of("context", integer, "longest sequence").from(1, 1e7),
      key_of("vocabulary", integer, "token ids are below it").from(2, 2147483647),
      key_of("kv_heads", integer, "heads of keys and values, a divisor of heads; null: heads")
          .from(1, 1e5),
      key_of("head_width", integer, "elements of a head, even; null: width / heads").from(2, 1e6),
      key_of("intermediate", integer, "channels inside the MLP").from(1, 1e7),
      key_of("norm_epsilon", number, "added to the mean square in norms").from(0, 1),
      key_of("head", text, "a matrix of its own, or the token embedding again")
          .one_of({"separate", "tied"}),
      key_of("qkv_bias", boolean, "whether q, k and v have biases, as Qwen2's"),
      key_of("head_norms", boolean,
             "whether each head of q and of k has an RMS norm, as Qwen3's; null: false"),
      key_of("window", integer,
             "positions that a query of a local layer sees, its own included; null: all")
          .from(1, 1e7),
      key_of("local_layers", text,
             "numbers of the layers that have the window, as \"0-4,6\"; null: all"),
      key_of("rope_theta", number, "base of the rotary embeddings' angles").from(0, 1e12),
      key_of("rope_factor", number,
             "by which the angles of layers without a window are divided; null: 1")
          .from(1, 1e6),
      key_of("local_rope_theta", number, "the same of local layers").from(0, 1e12),
      key_of("score_scale", number,
             "that scores of attention are multiplied by; null: 1 / sqrt(head_width)")
          .from(0, 1e6),
      key_of("rope_scaling.factor", number, "Llama 3's slowing of long turns; null: none")
          .from(0, 1e9),
      key_of("rope_scaling.low_freq_factor", number,
             "turns longer than the original context over it are slowed; null: 1")
          .from(0, 1e9),
      key_of("rope_scaling.high_freq_factor", number,
             "turns shorter than the original context over it stay; null: 4")
          .from(0, 1e9),
      key_of("rope_scaling.original_max_position_embeddings", integer,
             "the original context; with factor")
          .from(0, 1e9),
  };
}

}  // namespace zero
