// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "weights/hf/safetensors.h"
#include "weights/text_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

struct Format {
  std::string_view magic;
  std::string_view what;
};
constexpr std::string_view kPickle =
    "is a pickle of PyTorch, which is not read: save the model as safetensors, as transformers' "
    "save_pretrained does, and give that folder";
constexpr std::array kFormats{
    Format{"GGUF"sv,
           "is a GGUF file of llama.cpp, which is not read: give the folder of the model that it "
           "was made from, or have transformers write one: from_pretrained(FOLDER, "
           "gguf_file=NAME), then save_pretrained(OUT)"},
    Format{"\xc6\xd7\x34\x01"sv,  // 20240326
           "is a model of llm.c, which is not read: have llm.c's dev/eval/export_hf.py --input "
           "FILE --output OUT write a Hugging Face folder, and give that"},
    Format{"PK\x03\x04"sv, kPickle},
    Format{"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19"sv, kPickle}};  // before PyTorch 1.6

/// The names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The first bytes of a file; none if `path` is no file or cannot be read.
std::string start_of(const fs::path& path) {
  std::error_code error;
  std::string start(kForeignStart, '\0');
  std::ifstream file;
  if (fs::is_regular_file(path, error)) file.open(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return start;
}

/// The field of an adapter's configuration; `otherwise` if it cannot be read.
std::string adapter_field(const fs::path& config, const char* name, const char* otherwise) {
  try {
    const auto tree = parse_json_tree(read_text(files::disk(), config.string()));
    if (tree && tree->is_object() && tree->contains(name) && tree->at(name).is_string()) {
      return printable_line(tree->at(name).get<std::string>());
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the advice holds without
  }
  return otherwise;
}

std::string adapter(const fs::path& config) {
  return fmt::format(
      "it holds an adapter of PEFT ({}), not a model: merge it into its base, {}: "
      "PeftModel.from_pretrained(BASE, FOLDER).merge_and_unload().save_pretrained(OUT), and give "
      "OUT",
      adapter_field(config, "peft_type", "LORA"),
      adapter_field(config, "base_model_name_or_path", "which its adapter_config.json names"));
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// The snapshot that a folder models--x--y of the hub's cache calls its main one, else any; empty
/// if it holds none.
std::string snapshot_in(const fs::path& cache) {
  std::error_code error;
  try {
    std::string main = read_text(files::disk(), (cache / "refs/main").string(), 1000);
    while (main.ends_with('\n')) main.pop_back();
    const fs::path there = cache / "snapshots" / main;
    if (!main.empty() && fs::exists(there / "config.json", error)) return there.string();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): any snapshot will do
  }
  for (fs::directory_iterator at(cache / "snapshots", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unreadable;
    if (fs::exists(at->path() / "config.json", unreadable)) return at->path().string();
  }
  return "";
}

/// The newest checkpoint that transformers' Trainer wrote in `folder`; empty if there is none.
std::string trainer_checkpoint_in(const fs::path& folder) {
  constexpr std::string_view kBegin = "checkpoint-";
  std::int64_t newest = -1;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kBegin)) continue;
    const auto step = whole_number(std::string_view(name).substr(kBegin.size()), 0,
                                   std::numeric_limits<std::int64_t>::max());
    if (!step) continue;
    if (is_there(folder / name / "config.json") || is_there(folder / name / "adapter_config.json"))
      newest = std::max(newest, *step);
  }
  return newest < 0 ? "" : (folder / fmt::format("{}{}", kBegin, newest)).string();
}

/// Of a folder whose weights have no name that is read: GPTQ's early programs gave them others, and
/// the index is a file of its own to download.
std::string other_names(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto found = std::ranges::find_if(
      names, [](const std::string& name) { return name.ends_with(".safetensors"); });
  if (found == names.end()) return "";
  const std::string name = printable_line(*found);
  if (name.find("-of-") == name.npos) {
    return fmt::format(
        "; if its {} is all of the weights, call it model.safetensors, by a link too", name);
  }
  return fmt::format(
      "; it holds {} without {}, which says what is in such files: put that beside it", name,
      kWeightIndex);
}

/// Of a folder that is there.
std::string advice_inside(const fs::path& folder) {
  const fs::path above = folder.parent_path();
  if (folder.filename() == "snapshots" && above.filename().string().starts_with("models--")) {
    return advice_inside(above);
  }
  if (is_there(folder / "snapshots")) {
    const std::string snapshot = snapshot_in(folder);
    if (snapshot.empty()) {
      return "; it is a folder of Hugging Face's cache without a whole snapshot: download the "
             "model again, as with hf download NAME --local-dir FOLDER, and give FOLDER";
    }
    return fmt::format("; it is a folder of Hugging Face's cache: give {}",
                       printable_line(snapshot));
  }
  if (is_there(folder / "model.safetensors") || is_there(folder / kWeightIndex)) return "";
  const std::string foreign = foreign_folder(folder.string());
  if (!foreign.empty()) return "; " + foreign;
  const std::string saved = trainer_checkpoint_in(folder);
  if (saved.empty()) return other_names(folder);
  return fmt::format("; it is the folder of a run of transformers' Trainer: give {}",
                     printable_line(saved));
}

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

std::string foreign_file(std::string_view start) {
  std::uint64_t length = 0;  // of a safetensors file's header
  if (start.size() < sizeof(length)) return "";
  std::memcpy(&length, start.data(), sizeof(length));
  if (length <= static_cast<std::uint64_t>(FileHeader::kLargest)) return "";
  for (const Format& format : kFormats) {
    if (start.starts_with(format.magic)) return std::string(format.what);
  }
  return "";
}

std::string foreign_folder(const std::string& folder) {
  const fs::path path(folder);
  const std::vector<std::string> names = names_in(path);
  const auto has = [&](std::string_view name) { return std::ranges::binary_search(names, name); };
  const auto any = [&](const auto& fits) { return std::ranges::any_of(names, fits); };
  if (has("adapter_config.json")) return adapter(path / "adapter_config.json");
  const bool steps = any([](const std::string& name) { return name.starts_with("global_step"); });
  const bool states = any([](const std::string& name) { return name.ends_with("_states.pt"); });
  if (has("zero_to_fp32.py") || (has("latest") && steps) || states) {
    return fmt::format(
        "it is a checkpoint of DeepSpeed: run zero_to_fp32.py {} OUT --safe_serialization (the "
        "script lies beside \"latest\"), put config.json and the tokenizer's files into OUT, and "
        "give OUT",
        states ? "FOLDER, the one above," : "FOLDER");
  }
  const auto is_shard = [](const std::string& name) { return name.ends_with(".distcp"); };
  const std::vector<std::string> below = names_in(path / "pytorch_model_fsdp_0");
  if (any(is_shard) || std::ranges::any_of(below, is_shard)) {
    return fmt::format(
        "it is a distributed checkpoint of PyTorch (FSDP): run accelerate merge-weights {} OUT, "
        "put config.json and the tokenizer's files into OUT, and give OUT",
        any(is_shard) ? "FOLDER" : "FOLDER/pytorch_model_fsdp_0");
  }
  for (const std::string& name : names) {
    const bool may_be = name.ends_with(".gguf") || name.ends_with(".bin");
    const std::string what = may_be ? foreign_file(start_of(path / name)) : "";
    const bool beside = what == kPickle && !name.starts_with("pytorch_model");  // training_args.bin
    if (!what.empty() && !beside) return fmt::format("its {} {}", printable_line(name), what);
  }
  const auto whole = std::ranges::find_if(names, [](const std::string& name) {
    return name.starts_with("consolidated") &&
           (name.ends_with(".safetensors") || name.ends_with(".pth"));
  });
  if (whole != names.end()) {
    return fmt::format(
        "it holds {}, weights in the form of Mistral's or Meta's own programs, which is not read: "
        "give the same model in Hugging Face's form, with config.json and model.safetensors (or "
        "model.safetensors.index.json)",
        printable_line(*whole));
  }
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!has(name)) continue;
    return fmt::format(
        "it holds {}, which is not read: save the model as safetensors, as transformers' "
        "save_pretrained does, and give that folder",
        name);
  }
  return "";
}

bool is_hub_name(std::string_view path) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return !path.empty() && path.front() != '/' && path.front() != '.' && path.back() != '/' &&
         std::ranges::count(path, '/') <= 1 && std::ranges::all_of(path, fits);
}

std::string folder_advice(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return advice_inside(fs::path(path + "/").parent_path());
  if (is_there(path)) {
    const std::string foreign = foreign_file(start_of(path));
    return foreign.empty() ? "" : "; it " + foreign;
  }
  if (!is_hub_name(path)) return "";
  return fmt::format(
      "; if {0} is a name of Hugging Face's hub: models are not downloaded here; run hf download "
      "{0} --local-dir FOLDER, and give FOLDER",
      path);
}

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
  for (const std::string_view part :
       {"language_model.", "vision_tower.", "multi_modal_projector."}) {
    if (name.starts_with(part) || name.starts_with(fmt::format("model.{}", part))) {
      return fmt::format("; the model is multimodal, and only text is computed{}", kTextPart);
    }
  }
  const bool adapts = name.find(".lora_A.") != name.npos || name.find(".lora_B.") != name.npos;
  return adapts ? std::string(kAdapter) : "";
}

}  // namespace zero
