// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/quantization.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {
namespace {

using nlohmann::json;

constexpr const char* kThreshold = "llm_int8_threshold";
constexpr const char* kMlx = "quantization";
constexpr std::string_view kSource =
    "take the folder from which these were made, and --weights int8, nf4 or q4";

// How codes were found, and what other programs' kernels do with them.
constexpr std::string_view kOtherQuantizationKeys[] = {
    // AutoGPTQ, GPTQModel, AutoAWQ, transformers:
    "act_group_aware", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs",
    "damp_auto_increment", "damp_percent", "dataset", "disable_exllama", "do_fuse",
    "exllama_config", "fuse_max_seq_len", "max_input_length", "meta", "model_file_base_name",
    "model_name_or_path", "model_seqlen", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "modules_to_fuse", "mse", "pack_impl", "pad_token_id",
    "quant_method", "static_groups", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
    // AutoRound:
    "amp", "autoround_version", "enable_minmax_tuning", "enable_norm_bias_tuning",
    "enable_quanted_input", "gradient_accumulate_steps", "iters", "low_gpu_mem_usage", "lr",
    "minmax_lr", "n_samples", "nsamples", "provider", "scale_dtype", "seqlen",
    "static_attention_granularity", "static_kv_granularity", "to_quant_block_names", "train_bs"};

[[noreturn]] void refuse_method(JsonFields& fields, JsonFields& section) {
  const bool bits8 = section.flag("load_in_8bit", false);
  const bool bits4 = section.flag("load_in_4bit", false);
  const std::string method =
      section.text("quant_method", bits8 || bits4 ? "bitsandbytes" : "no quant_method");
  fail(
      "{}: found {}{}, expected codes that zero_generate --save-quantized wrote (quant_method "
      "\"{}\"), or of gptq or awq in 4 bits: {}{}{}",
      fields.place(kHfQuantization), printable_line(method),
      bits8   ? " in 8 bits"
      : bits4 ? " in 4 bits"
              : "",
      kHfOurMethod, kSource, section.has(kThreshold) && !bits4 ? "; " : "",
      section.has(kThreshold) && !bits4 ? kNoThreshold : "");
}

HfCodes our_codes(JsonFields& section) {
  ZERO_CHECK(!section.has(kThreshold), "{}: found {}, expected none: {}", section.place(kThreshold),
             section.raw(kThreshold).dump(), kNoThreshold);
  const std::int64_t version = section.integer("version");
  ZERO_CHECK(version == 1, "{}: found {}, expected 1: take a later zero_generate",
             section.place("version"), version);
  HfCodes codes{.format = section.text("format")};
  section.finish({});
  return codes;
}

/// Which of two names of a field the section has; both may say the same.
const char* named(JsonFields& section, const char* name, const char* other) {
  if (!section.has(other)) return name;
  if (section.has(name) && section.raw(name) != section.raw(other)) {
    section.refuse(name, "found {} beside {} {}, expected one value", section.raw(name).dump(),
                   other, section.raw(other).dump());
  }
  return other;
}

void require_four_bits(JsonFields& section, const char* name) {
  const std::int64_t bits = section.integer(name);
  if (bits != 4) section.refuse(name, "found {}, expected 4: {}", bits, kSource);
}

std::int64_t group_of(JsonFields& section, const char* name) {
  constexpr std::int64_t kStep = 32;
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t group = section.integer(name);
  if (group == -1) return 0;
  if (group < kStep || group % kStep != 0 || group > kMost) {
    section.refuse(name,
                   "found {}, expected -1 (all inputs in one group) or a multiple of {} up to {}: "
                   "{}",
                   group, kStep, kMost, kSource);
  }
  return group;
}

/// Refuses a text that is not `expected`, whatever the case of its letters.
void require_text(JsonFields& section, const char* name, std::string_view expected,
                  std::string_view why) {
  std::string found = section.text(name, std::string(expected));
  for (char& c : found) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (found == expected) return;
  section.refuse(name, "found \"{}\", expected \"{}\": {}; {}", printable_line(found), expected,
                 why, kSource);
}

/// What codes of either method cannot be. Which matrices are in codes is seen by their tensors.
void refuse_kinds(JsonFields& section) {
  constexpr const char* kPlain = "modules_to_not_convert";
  if (section.has(kPlain)) section.texts(kPlain);
  section.only("lm_head", false, "a head in codes is not read");
  section.only("dynamic", json::object(), "every matrix of a block has the same bits and groups");
  require_text(section, "pack_dtype", "int32", "eight codes have a word of 32 bits");
  require_text(section, "data_type", "int", "codes are whole numbers");
}

GroupQuantization::Packing gptq_packing(JsonFields& section) {
  const char* const name = named(section, "checkpoint_format", "format");
  const std::string format = section.text(name, "gptq");
  if (format == "gptq") return GroupQuantization::Packing::gptq;
  if (format == "gptq_v2") return GroupQuantization::Packing::gptq_v2;
  section.refuse(name,
                 "found \"{}\", codes repacked for one kernel, expected \"gptq\" or \"gptq_v2\": "
                 "have the program that wrote the folder save one of these, or {}",
                 printable_line(format), kSource);
}

GroupQuantization gptq_from(JsonFields& section) {
  GroupQuantization of;
  require_four_bits(section, named(section, "bits", "w_bit"));
  of.group = group_of(section, named(section, "group_size", "q_group_size"));
  section.only("is_marlin_format", false, "codes repacked for Marlin's kernels are not read");
  of.packing = gptq_packing(section);
  of.symmetric = section.flag("sym", true);
  of.sorted = section.flag("desc_act", false);
  section.only("hyb_act", false, "inputs are in their own order");
  require_text(section, "method", "gptq", "quant_method says so");
  refuse_kinds(section);
  return of;
}

GroupQuantization awq_from(JsonFields& section) {
  GroupQuantization of{.packing = GroupQuantization::Packing::awq};
  require_four_bits(section, named(section, "bits", "w_bit"));
  of.group = group_of(section, named(section, "group_size", "q_group_size"));
  of.symmetric = !section.flag("zero_point", true);
  section.raw("sym");  // of zero_point's meaning, but transformers 5 writes true always
  for (const char* name : {"version", "format", "checkpoint_format"}) {
    require_text(section, name, "gemm", "other versions order codes otherwise");
  }
  section.only("desc_act", false, "inputs are in their own order");
  require_text(section, "method", "awq", "quant_method says so");
  if (section.raw("backend") == "llm-awq") {
    section.refuse("backend",
                   "found \"llm-awq\", which orders codes otherwise, expected another: {}",
                   kSource);
  }
  refuse_kinds(section);
  return of;
}

}  // namespace

HfCodes codes_from(JsonFields& config) {
  ZERO_CHECK(!config.has(kMlx), "{}: found {}, codes of MLX, expected plain weights: {}",
             config.place(kMlx), config.raw(kMlx).dump(), kSource);
  if (!config.has(kHfQuantization)) return {};
  JsonFields section = config.object(kHfQuantization);
  const json method = section.raw("quant_method");
  if (method == kHfOurMethod) return our_codes(section);
  if (method != "gptq" && method != "awq") refuse_method(config, section);
  HfCodes codes{.format = method.get<std::string>(),
                .groups = method == "gptq" ? gptq_from(section) : awq_from(section)};
  section.finish(kOtherQuantizationKeys);
  return codes;
}

}  // namespace zero
