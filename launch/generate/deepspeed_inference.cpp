// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/deepspeed_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/similar_names.h"
#include "launch/generate/generate_flags.h"
#include "tiers/tier_file.h"

namespace zero {
namespace {

using nlohmann::json;

class InferenceReader {
 public:
  explicit InferenceReader(const std::string& path) : path_(path) {
    const json tree = read_json_file(path);
    ZERO_CHECK(tree.is_object(), "{}: found {}, expected an object of settings", path,
               shown_value(tree));
    read(tree, "");
    if (refused_.empty()) return;
    if (refused_.size() == 1) fail("{}: {}", path_, refused_.front());
    fail("{}:\n  {}", path_, fmt::join(refused_, "\n  "));
  }

  std::optional<json> value(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::vector<std::string>& idle() const { return idle_; }

 private:
  void read(const json& object, const std::string& section) {
    for (const auto& [name, value] : object.items()) {
      if (name.starts_with('_') || name.starts_with("//")) continue;  // a remark
      const std::string path = section.empty() ? name : section + "." + name;
      const std::string known = inference_key(path);
      const auto option = std::ranges::find(inference_keys(), known, &Option::path);
      if (option != inference_keys().end()) {
        take(*option, path, value);
      } else if (value.is_object() && holds_options(known)) {
        read(value, path);
      } else if (holds_options(known)) {
        if (!value.is_null()) refused_.push_back(no_section(path, known, value));
      } else {
        refused_.push_back(unknown(path, known));
      }
    }
  }
  static bool holds_options(const std::string& section) {
    return std::ranges::any_of(inference_keys(), [&](const Option& option) {
      return option.path.starts_with(section + ".");
    });
  }

  void take(const Option& option, const std::string& path, const json& value) {
    if (option.handling == Handling::unless_enabled) {
      const bool off = value.is_null() || value == false ||
                       (value.is_object() && value.value("device", "") == "none");
      if (!off) refuse(option, path, value);
      return;
    }
    if (value == "auto" || value.is_null()) return;  // as not given
    if (option.handling == Handling::only_default) {
      if (value != option.default_value()) refuse(option, path, value);
      return;
    }
    const std::vector<std::string>& choices = option.choices;
    if (!choices.empty() && value.is_string() &&
        std::ranges::find(choices, value.get<std::string>()) == choices.end()) {
      return refuse(option, path, value);
    }
    try {
      values_[option.path] = checked_value(option, value, path_);
    } catch (const Error& error) {
      const std::string text = error.what();
      refused_.push_back(text.starts_with(path_ + ": ") ? text.substr(path_.size() + 2) : text);
      return;
    }
    if (option.handling == Handling::accepted) {
      idle_.push_back(fmt::format("{} ({})", path, option.help));
    }
  }
  void refuse(const Option& option, const std::string& path, const json& value) {
    refused_.push_back(fmt::format("{}: found {}; {}; leave it out", path,
                                   printable_line(shown_value(value)), option.help));
  }

  static std::string no_section(const std::string& path, const std::string& known,
                                const json& value) {
    const auto first = std::ranges::find_if(inference_keys(), [&](const Option& option) {
      return option.path.starts_with(known + ".");
    });
    const std::string rest = first->path.substr(known.size() + 1);
    return fmt::format("{}: found {}, expected an object of settings, as {{\"{}\": ...}}",
                       printable_line(path), printable_line(shown_value(value)),
                       rest.substr(0, rest.find('.')));
  }

  /// Names of sections and, behind them, of options.
  static std::vector<std::string> known_names() {
    std::set<std::string> sections;
    std::vector<std::string> options;
    for (const Option& option : inference_keys()) {
      options.push_back(option.path);
      for (std::size_t dot = option.path.find('.'); dot != std::string::npos;
           dot = option.path.find('.', dot + 1)) {
        sections.insert(option.path.substr(0, dot));
      }
    }
    std::vector<std::string> all(sections.begin(), sections.end());
    std::ranges::move(options, std::back_inserter(all));
    return all;
  }

  static std::string unknown(const std::string& path, const std::string& known) {
    const auto text = [&](const std::string& advice) {
      return fmt::format("unknown key \"{}\"{}", printable_line(path), advice);
    };
    const std::vector<std::string> all = known_names();
    std::string near = nearest_name(known, all, 6);
    const std::string last = known.substr(known.rfind('.') + 1);
    if (near.empty()) {  // a key in another's section
      std::vector<std::string> names;
      for (const std::string& each : all) names.push_back(each.substr(each.rfind('.') + 1));
      const std::string name = nearest_name(last, names, 6);
      const auto at = std::ranges::find(names, name) - names.begin();
      if (!name.empty()) near = all[static_cast<std::size_t>(at)];
    }
    if (!near.empty()) return text(fmt::format("; did you mean \"{}\"?", near));
    if (find_option(known) != nullptr || is_section(known)) {
      return text(": it is training's; leave it out");
    }
    return text("; leave it out");
  }

  const std::string path_;
  std::map<std::string, json> values_{};  // by the table's paths
  std::vector<std::string> idle_{};
  std::vector<std::string> refused_{};
};

/// What the file says, beside the command line, which counts before it.
class InferenceSettings {
 public:
  InferenceSettings(const std::string& path, GenerateFlags& flags)
      : path_(path), reader_(path), flags_(flags) {}

  std::vector<std::string> apply() {
    apply_dtype();
    apply_tensor();
    apply_sharding();
    apply_offload();
    std::vector<std::string> lines;
    if (!used_.empty()) lines.push_back(fmt::format("{}: {}", path_, fmt::join(used_, ", ")));
    std::ranges::copy(reader_.idle(), std::back_inserter(unused_));
    if (!unused_.empty()) {
      lines.push_back(fmt::format("{}: changes nothing here: {}", path_, fmt::join(unused_, "; ")));
    }
    return lines;
  }

 private:
  template <typename Set>
  void use(const std::string& option, const std::string& value, const Set& set) {
    if (flags_.gave(option)) {
      used_.push_back(fmt::format("{} of the command line instead of {}", option, value));
      return;
    }
    set();
    used_.push_back(fmt::format("{} {}", option, value));
  }

  void apply_dtype() {
    std::string dtype;
    for (const char* const name : {"bf16", "fp16"}) {
      if (reader_.value(std::string(name) + ".enabled") != json(true)) continue;
      ZERO_CHECK(dtype.empty(), "{}: bf16.enabled and fp16.enabled are both true; expected one",
                 path_);
      dtype = name;
    }
    if (const auto given = reader_.value("dtype")) {
      const std::string name = dtype_name(given->get<std::string>());
      ZERO_CHECK(dtype.empty() || dtype == name, "{}: dtype is {}, and {}.enabled is true", path_,
                 shown_value(*given), dtype);
      if (name == "int8") {
        return use("--weights", "int8", [&] { flags_.weights = "int8"; });
      }
      dtype = name;
    }
    if (dtype.empty()) return;
    use("--dtype", dtype, [&] {
      flags_.dtype = dtype;
      flags_.given.insert("--dtype");
    });
  }
  std::string dtype_name(const std::string& text) const {
    static const std::map<std::string, std::string> kNames{
        {"fp32", "fp32"},          {"float", "fp32"},         {"float32", "fp32"},
        {"torch.float", "fp32"},   {"fp16", "fp16"},          {"half", "fp16"},
        {"float16", "fp16"},       {"torch.half", "fp16"},    {"bf16", "bf16"},
        {"int8", "int8"},          {"bfloat16", "bf16"},      {"torch.int8", "int8"},
        {"torch.float32", "fp32"}, {"torch.float16", "fp16"}, {"torch.bfloat16", "bf16"}};
    const auto found = kNames.find(text);
    ZERO_CHECK(found != kNames.end(), "{}: dtype: found \"{}\", expected fp32, fp16, bf16 or int8",
               path_, printable_line(text));
    return found->second;
  }

  void apply_tensor() {
    std::optional<std::int64_t> tensor;
    for (const char* const key :
         {"tensor_parallel.tp_size", "tensor_parallel.autotp_size", "mp_size"}) {
      const auto given = reader_.value(key);
      if (!given || *given == 0) continue;
      const auto ranks = given->get<std::int64_t>();
      ZERO_CHECK(!tensor || *tensor == ranks, "{}: {} is {}, and another key says {} tensor ranks",
                 path_, key, ranks, *tensor);
      tensor = ranks;
    }
    if (!tensor) return;
    use("--tensor", std::to_string(*tensor), [&] { flags_.tensor = static_cast<int>(*tensor); });
  }

  void apply_sharding() {
    if (const auto given = reader_.value("zero_optimization.stage")) {
      const auto stage = given->get<int>();
      ZERO_CHECK(stage == 0 || stage == 3,
                 "{}: zero_optimization.stage: found {}, which shards gradients and optimizer "
                 "states alone; expected 3 (ranks share weights) or 0 (each keeps all)",
                 path_, stage);
      use("--replicate",
          stage == 0 ? "so that each rank keeps all weights (stage 0)"
                     : "1: ranks share weights (stage 3)",
          [&] { flags_.sharded.stage = stage; });
    }
    const auto elements = [&](const char* key, std::optional<double>& to) {
      const auto given = reader_.value(std::string("zero_optimization.") + key);
      if (!given) return;
      use("--windows", fmt::format("by {} {}", key, shown_value(*given)),
          [&] { to = given->get<double>(); });
    };
    elements("stage3_prefetch_bucket_size", flags_.sharded.prefetched);
    elements("stage3_max_live_parameters", flags_.sharded.live);
  }

  void apply_offload() {
    const std::string section = "zero_optimization.offload_param.";
    const std::string device = text_of(section + "device");
    const std::string folder = text_of(section + "nvme_path");
    apply_transfers(device == "nvme" || !flags_.offload.folder.empty());
    if (device != "nvme") {
      if (!folder.empty()) {
        unused_.push_back(section + "nvme_path (" + section + "device is not \"nvme\")");
      }
      return;
    }
    ZERO_CHECK(!folder.empty() || flags_.gave("--offload-weights"),
               "{}: {}device is \"nvme\" without {}nvme_path; give the folder, on a local disk of "
               "each host",
               path_, section, section);
    use("--offload-weights", printable_line(folder), [&] { flags_.offload.folder = folder; });
  }

  /// How files are read, wherever their folder comes from; if there are any.
  void apply_transfers(bool files) {
    TierFileOptions& file = flags_.offload;
    const auto number = [&](const char* key, auto& to) {
      const auto given = reader_.value(std::string("aio.") + key);
      if (!given) return;
      given->get_to(to);
      if (!files) unused_.push_back(fmt::format("aio.{} (no weights are in files)", key));
    };
    number("block_size", file.block_bytes);
    number("queue_depth", file.queue.depth);
    number("thread_count", file.queue.threads);
    number("intra_op_parallelism", file.queue.threads);
    number("single_submit", file.queue.one_by_one);
    number("overlap_events", file.overlap_events);
    ZERO_CHECK(
        file.block_bytes % TierFile::kBlock == 0,
        "{}: aio.block_size is {}, expected a multiple of {}, in which disks are read; give {}",
        path_, file.block_bytes, TierFile::kBlock, round_up(file.block_bytes, TierFile::kBlock));
  }

  /// Empty: not given.
  std::string text_of(const std::string& key) const {
    const auto given = reader_.value(key);
    return given ? given->get<std::string>() : std::string();
  }

  const std::string path_;
  const InferenceReader reader_;
  GenerateFlags& flags_;
  std::vector<std::string> used_{};
  std::vector<std::string> unused_{};
};

}  // namespace

std::vector<std::string> apply_deepspeed_inference(const std::string& path, GenerateFlags& flags) {
  return InferenceSettings(path, flags).apply();
}

}  // namespace zero
