// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/hf/foreign_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/printable.h"
#include "weights/hf/file_header.h"
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

/// The first bytes of a file; none of what is no file or cannot be read.
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

std::string foreign_file_at(const std::string& path) { return foreign_file(start_of(path)); }

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
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!has(name)) continue;
    return fmt::format(
        "it holds {}, which is not read: save the model as safetensors, as transformers' "
        "save_pretrained does, and give that folder",
        name);
  }
  return "";
}

}  // namespace zero
