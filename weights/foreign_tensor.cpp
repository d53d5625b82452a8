// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/foreign_tensor.h"

#include <array>
#include <string_view>

namespace zero {
namespace {

constexpr std::string_view kEightBits =
    "; the weights are codes of 8 bits (FP8) with scales beside them: have transformers write them "
    "whole: from_pretrained(FOLDER, quantization_config=FineGrainedFP8Config(dequantize=True)), "
    "then save_pretrained(OUT)";
constexpr std::string_view kAdapter =
    "; it is of an adapter of PEFT: merge it into its base (merge_and_unload()) and save that";

struct Prefix {
  std::string_view begin;
  std::string_view what;
};
// Outer wrappers first.
constexpr std::array kPrefixes{
    Prefix{"_orig_mod.",
           "; _orig_mod. is of torch.compile: save the module that was compiled "
           "(model._orig_mod), or take the prefix off the names"},
    Prefix{"module.",
           "; module. is of DistributedDataParallel, DeepSpeed or the like: save the "
           "module inside (model.module), or take the prefix off the names"},
    Prefix{"v_head.",
           "; it is the value head of TRL's AutoModelForCausalLMWithValueHead: save its "
           "pretrained_model"},
    Prefix{"base_model.model.", kAdapter},
};

bool is_fp8(FileType type) {
  return type == FileType::f8_e4m3 || type == FileType::f8_e5m2 || type == FileType::f8_e8m0;
}

}  // namespace

std::string tensor_advice(const FileTensor& tensor) {
  const std::string_view name = tensor.name;
  if (tensor.shape.size() == 1 && tensor.shape[0] == 0) {
    return "; the file was saved under DeepSpeed's ZeRO-3, or FSDP, without gathering the weights: "
           "save with stage3_gather_16bit_weights_on_model_save, or run zero_to_fp32.py FOLDER OUT "
           "--safe_serialization on the checkpoint, and give OUT";
  }
  if (is_fp8(tensor.type) || name.ends_with(".weight_scale_inv")) return std::string(kEightBits);
  for (const Prefix& prefix : kPrefixes) {
    if (name.starts_with(prefix.begin)) return std::string(prefix.what);
  }
  const bool adapts = name.find(".lora_A.") != name.npos || name.find(".lora_B.") != name.npos;
  return adapts ? std::string(kAdapter) : "";
}

}  // namespace zero
