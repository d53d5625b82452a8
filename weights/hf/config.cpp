// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "architecture/family.h"
#include "base/error.h"
#include "base/json_tree.h"
#include "files/file_system.h"
#include "weights/hf/advice.h"
#include "weights/model_files.h"

namespace zero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Fields on which no pass depends.
constexpr std::string_view kPassedOver[] = {
    // How a model was made and is stored:
    "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal",
    "_commit_hash", "_experts_implementation", "_flash_attn_2_enabled", "_hf_peft_config_loaded",
    "_name_or_path", "_num_labels", "_pre_quantization_dtype", "_rope_scaling_validation",
    "attn_implementation", "dtype", "is_llama_config", "model_max_length", "model_type", "n_ctx",
    "n_special", "output_attentions", "output_hidden_states", "output_past",
    "predict_special_tokens", "pretraining_tp", "reorder_and_upcast_attn", "return_dict",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers.js_config",
    "transformers_version", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
    "use_flash_attention_2",
    // How it was or will be trained, and what heads of other tasks are made of:
    "attention_dropout", "attn_pdrop", "classifier_dropout", "embd_pdrop", "finetuning_task",
    "gradient_checkpointing", "hidden_dropout", "id2label", "initializer_range", "is_decoder",
    "label2id", "neftune_noise_alpha", "num_labels", "problem_type", "resid_pdrop",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "tie_encoder_decoder",
    // How text is generated:
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward",
    "cls_token_id", "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "mask_token_id", "max_length",
    "max_new_tokens", "max_sequence_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "pad_token_id",
    "prefix", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
    "top_k", "top_p", "typical_p", "unk_token_id"};

/// The family of a config.json, and its class of transformers.
struct Described {
  const Family& family;
  const Family::HfClass& of;
};

/// What to write as architectures where `found` is another class of a model that is computed: its
/// base, without a head, or as FSDP wraps it. Empty: nothing.
std::string class_for(const json& found) {
  const std::string name = found.is_string() ? found.get<std::string>() : "";
  for (const Family* family : families()) {
    for (const Family::HfClass& each : family->hf_classes) {
      const std::string of(each.architecture);
      const std::string stem = of.substr(0, std::min(of.find("ForCausalLM"), of.find("LMHead")));
      if (name == "FSDP" + of || name == stem + "Model" || name == stem + "TextModel") return of;
    }
  }
  return "";
}

Described described_by(JsonFields& fields) {
  const json list = fields.raw("architectures");
  const bool listed = list.is_array() && list.size() == 1;
  const json found = listed ? list[0] : fields.raw("model_type");
  std::string names;
  for (const Family* family : families()) {
    for (const Family::HfClass& each : family->hf_classes) {
      if (found == (listed ? each.architecture : each.model_type)) return {*family, each};
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", each.architecture);
    }
  }
  const bool images = fields.has("vision_config");
  const bool gemma3 = fields.object("text_config").raw("model_type") == "gemma3_text";
  ZERO_CHECK(!images || !gemma3,
             "{}: found a model of images, expected one of text alone, such as Gemma3ForCausalLM{}",
             fields.place("vision_config"), kTextPart);
  const std::string known = class_for(found);
  ZERO_CHECK(known.empty(),
             "{}: found {}; set architectures to [\"{}\"] if the model continues texts, with its "
             "token embedding as its head (tie_word_embeddings) or with lm_head.weight",
             fields.place("architectures"), list.dump(), known);
  fail("{}: found {}{}, expected one of {}", fields.place("architectures"),
       list.is_null() ? found.dump() : list.dump(), images ? ", a model of images" : "", names);
}

/// The fields of a source; weights beside them are in `dtype`, a name of torch's.
ordered_json carried(std::string_view text, std::string_view dtype) {
  ordered_json tree = *parse_ordered_tree(text);
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (tree.contains(key)) tree[key] = dtype;
  }
  return tree;
}

std::string path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / "config.json").string();
}

/// Whether a config.json of this text describes the model whose own text is `own`.
bool describes(const std::string& path, const std::string& text, const std::string& own) {
  try {
    return hf_config_text(parse_hf_config(path, text)) == own;
  } catch (const Error&) {  // a field that is not computed: why the model is described elsewhere
    return false;
  }
}

}  // namespace

HfModel parse_hf_model(const std::string& path, std::string_view text) {
  JsonFields fields = JsonFields::parse(path, text);
  const Described described = described_by(fields);
  const DecoderShape shape = described.family.from_hf(fields, described.of.model_type);
  try {
    shape.validate();
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
  fields.only("pruned_heads", json::object(), "every head is computed");
  fields.only("add_cross_attention", false, "there is one text");
  fields.only("is_encoder_decoder", false, "there is no encoder");
  fields.only("is_causal", true, "no position sees a later one");
  HfCodes codes = codes_from(fields);
  fields.finish(kPassedOver);
  return {shape, std::move(codes.format), codes.groups};
}

DecoderShape parse_hf_config(const std::string& path, std::string_view text) {
  const HfModel model = parse_hf_model(path, text);
  ZERO_CHECK(model.codes.empty(),
             "{}: {}: found codes of {}, expected plain weights: only zero_generate reads codes; "
             "take the folder from which these were made",
             path, kHfQuantization, model.codes);
  return model.shape;
}

std::string hf_config_text(const DecoderShape& shape) {
  return shape.family->to_hf(shape).dump(2) + "\n";
}

std::string carried_config_text(const std::string& path, std::string_view text) {
  parse_hf_config(path, text);
  constexpr const char* kType = "float32";
  ordered_json tree = carried(text, kType);
  if (!tree.contains("torch_dtype") && !tree.contains("dtype")) tree["torch_dtype"] = kType;
  return tree.dump(2) + "\n";
}

std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype) {
  parse_hf_config(path, text);
  ordered_json tree = carried(text, dtype);
  tree[kHfQuantization] = {{"quant_method", kHfOurMethod}, {"format", codes}, {"version", 1}};
  return tree.dump(2) + "\n";
}

std::string hf_config_source(const std::string& folder) {
  const std::string path = path_in(folder);
  try {
    return read_model_text(path);
  } catch (const Error& error) {
    fail("{}: cannot be read; expected the config.json of a Hugging Face model ({}){}", path,
         error.what(), folder_advice(folder));
  }
}

HfModel read_hf_model(const std::string& folder) {
  return parse_hf_model(path_in(folder), hf_config_source(folder));
}

DecoderShape read_hf_config(const std::string& folder) {
  return parse_hf_config(path_in(folder), hf_config_source(folder));
}

std::string carried_config(const std::string& folder) {
  return carried_config_text(path_in(folder), hf_config_source(folder));
}

std::string carried_config(const std::string& folder, const DecoderShape& model) {
  const std::string own = hf_config_text(model);
  const std::string path = path_in(folder);
  if (files::disk().kind_of(path) != files::PathKind::file) return own;
  const std::string text = read_model_text(path);
  if (describes(path, text, own)) return carried_config_text(path, text);
  std::optional<ordered_json> tree = parse_ordered_tree(text);
  if (!tree || !tree->is_object()) return own;
  const auto fields = json::parse(own);
  for (const auto& [key, value] : fields.items()) {
    if (key != "architectures" && key != "model_type") (*tree)[key] = value;
  }
  // GPT-2's second name of the context, which transformers reads no longer.
  if (tree->contains("n_ctx") && fields.contains("n_positions")) {
    (*tree)["n_ctx"] = fields["n_positions"];
  }
  const std::string changed = tree->dump(2) + "\n";
  return describes(path, changed, own) ? carried_config_text(path, changed) : own;
}

}  // namespace zero
