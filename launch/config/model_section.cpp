// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

template <typename Config>
struct SizeField {
  const char* path;
  std::int64_t Config::*member;
};

constexpr SizeField<Gpt2Config> kGpt2Sizes[] = {{"model.layers", &Gpt2Config::layers},
                                                {"model.width", &Gpt2Config::width},
                                                {"model.heads", &Gpt2Config::heads},
                                                {"model.context", &Gpt2Config::context},
                                                {"model.vocabulary", &Gpt2Config::vocabulary}};

constexpr SizeField<LlamaConfig> kLlamaSizes[] = {
    {"model.layers", &LlamaConfig::layers},
    {"model.width", &LlamaConfig::width},
    {"model.heads", &LlamaConfig::heads},
    {"model.context", &LlamaConfig::context},
    {"model.vocabulary", &LlamaConfig::vocabulary},
    {"model.intermediate", &LlamaConfig::intermediate}};

/// The keys that GPT-2 models do not use.
std::vector<std::string> llama_keys() {
  std::vector<std::string> keys{"model.kv_heads",     "model.head_width", "model.intermediate",
                                "model.norm_epsilon", "model.head",       "model.qkv_bias",
                                "model.rope_theta"};
  for (const std::string& key : keys_of_section("model.rope_scaling")) {
    keys.push_back("model.rope_scaling." + key);
  }
  return keys;
}

template <typename Config, std::size_t Count>
void note_sizes(Configuration& values, const Config& config,
                const SizeField<Config> (&fields)[Count], const std::string& source) {
  for (const auto& field : fields) {
    if (values.is_null(field.path)) values.resolve(field.path, config.*field.member, source);
  }
}

/// Fills in the keys that were not given, so that the configuration shows them.
void note(Configuration& values, const Gpt2Config& config, const std::string& source) {
  note_sizes(values, config, kGpt2Sizes, source);
}

void note(Configuration& values, const LlamaConfig& config, const std::string& source) {
  note_sizes(values, config, kLlamaSizes, source);
  const auto fill = [&](const char* path, nlohmann::json value) {
    if (values.is_null(path)) values.resolve(path, std::move(value), source);
  };
  fill("model.kv_heads", config.kv_heads);
  fill("model.head_width", config.head_elements());
  fill("model.norm_epsilon", config.norm_epsilon);
  fill("model.head", config.head == LlamaConfig::Head::tied ? "tied" : "separate");
  fill("model.qkv_bias", config.qkv_bias == LlamaConfig::QkvBias::present);
  fill("model.rope_theta", config.rotary.theta);
  if (const auto& scaling = config.rotary.scaling) {
    fill("model.rope_scaling.factor", scaling->factor);
    fill("model.rope_scaling.low_freq_factor", scaling->low_frequency);
    fill("model.rope_scaling.high_freq_factor", scaling->high_frequency);
    fill("model.rope_scaling.original_max_position_embeddings", scaling->original_context);
  }
}

ModelConfig from_folder(Configuration& values, const std::string& folder) {
  for (const Option& option : option_table()) {
    if (!option.path.starts_with("model.") || option.path == "model.hf") continue;
    ZERO_CHECK(!values.given(option.path),
               "{}: {} is given beside model.hf, whose config.json has all of the section; leave "
               "one of them out",
               values.source(), option.path);
  }
  const ModelConfig config = read_hf_config(folder);
  const std::string source = folder + (folder.ends_with('/') ? "" : "/") + "config.json";
  values.resolve("model.family", std::string(family_of(config)), source);
  std::visit([&](const auto& family) { note(values, family, source); }, config);
  return config;
}

Gpt2Config gpt2_from(Configuration& values, const std::string& name) {
  for (const std::string& path : llama_keys()) {
    ZERO_CHECK(!values.given(path) || values.is_null(path),
               "{}: {} does not belong to model.family \"gpt2\" but to llama", values.source(),
               path);
  }
  Gpt2Config config;
  if (!name.empty()) {
    const auto named = Gpt2Config::by_name(name);
    ZERO_CHECK(named.has_value(), "{}: model.name: there is no model \"{}\"", values.source(),
               name);
    config = *named;
  }
  for (const auto& field : kGpt2Sizes) {
    if (!values.is_null(field.path)) config.*field.member = values.integer(field.path);
  }
  note(values, config, name.empty() ? "default of gpt2" : "model " + name);
  return config;
}

std::optional<RotaryScaling> scaling_from(const Configuration& values) {
  const auto path = [](const char* key) { return "model.rope_scaling." + std::string(key); };
  const std::string length = path("original_max_position_embeddings");
  if (values.is_null(path("factor"))) {
    for (const std::string& key : keys_of_section("model.rope_scaling")) {
      ZERO_CHECK(values.is_null(path(key.c_str())),
                 "{}: {} is given without model.rope_scaling.factor; give both or neither",
                 values.source(), path(key.c_str()));
    }
    return std::nullopt;
  }
  ZERO_CHECK(!values.is_null(length),
             "{}: {} is missing; give the context that the model had "
             "before it was stretched",
             values.source(), length);
  RotaryScaling scaling{.factor = values.number(path("factor")),
                        .original_context = values.integer(length)};
  if (!values.is_null(path("low_freq_factor"))) {
    scaling.low_frequency = values.number(path("low_freq_factor"));
  }
  if (!values.is_null(path("high_freq_factor"))) {
    scaling.high_frequency = values.number(path("high_freq_factor"));
  }
  return scaling;
}

LlamaConfig llama_from(Configuration& values) {
  LlamaConfig config;
  for (const auto& field : kLlamaSizes) {
    ZERO_CHECK(!values.is_null(field.path),
               "{}: {} is missing: a model of the family llama has no default sizes; give it, or a "
               "Hugging Face folder as model.hf",
               values.source(), field.path);
    config.*field.member = values.integer(field.path);
  }
  const auto is_given = [&](const char* path) { return !values.is_null(path); };
  config.kv_heads = is_given("model.kv_heads") ? values.integer("model.kv_heads") : config.heads;
  if (is_given("model.head_width")) config.head_width = values.integer("model.head_width");
  if (is_given("model.norm_epsilon")) config.norm_epsilon = values.number("model.norm_epsilon");
  if (values.text("model.head") == "tied") config.head = LlamaConfig::Head::tied;
  if (is_given("model.qkv_bias") && values.boolean("model.qkv_bias")) {
    config.qkv_bias = LlamaConfig::QkvBias::present;
  }
  if (is_given("model.rope_theta")) config.rotary.theta = values.number("model.rope_theta");
  config.rotary.scaling = scaling_from(values);
  return config;
}

ModelConfig from_keys(Configuration& values) {
  const std::string name = values.text("model.name");
  const bool any = std::any_of(std::begin(kGpt2Sizes), std::end(kGpt2Sizes),
                               [&](const auto& field) { return values.given(field.path); });
  if (name.empty() && !any && !values.given("model.family")) {
    throw Refusal(
        fmt::format("{}: model is missing; give a name (\"model\": \"gpt2-124m\"), a Hugging Face "
                    "folder ({{\"hf\": \"FOLDER\"}}) or an object {{family, layers, width, heads, "
                    "context, vocabulary}}",
                    values.source()),
        {"model.hf=FOLDER"});
  }
  if (values.text("model.family") == "gpt2") return gpt2_from(values, name);
  ZERO_CHECK(name.empty(), "{}: model.name \"{}\" is a gpt2, model.family is \"{}\"; leave one out",
             values.source(), name, values.text("model.family"));
  return llama_from(values);
}

}  // namespace

ModelConfig make_model_config(Configuration& values) {
  const std::string folder = values.text("model.hf");
  if (!folder.empty()) return from_folder(values, folder);
  ModelConfig config = from_keys(values);
  try {
    validate(config);
  } catch (const Error& error) {
    fail("{}: model: {}", values.source(), error.what());
  }
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) note(values, *llama, "default");
  return config;
}

std::vector<Option> model_options() {
  using enum ValueType;
  return {
      honour("model.name", text, "null", "sizes by name; \"model\": \"gpt2-124m\" is short for it")
          .one_of({"gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m"}),
      honour("model.hf", text, "null",
             "a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2): its config.json gives all of "
             "this section, its safetensors files the weights unless run.init says otherwise"),
      honour("model.family", text, "\"gpt2\"", "what is computed").one_of({"gpt2", "llama"}),
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
      honour("model.rope_theta", number, "null",
             "llama: base of the rotary embeddings' angles; null: 10000")
          .from(0, 1e12),
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
