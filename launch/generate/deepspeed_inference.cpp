// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/deepspeed_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/option.h"
#include "launch/config/similar_names.h"
#include "launch/generate/generate_flags.h"

namespace zero {
namespace {

using nlohmann::json;

/// What inference does with a section or key of DeepSpeed's that it does not honour.
std::vector<Option> sharding_options() {
  using enum ValueType;
  const std::string reduced = "nothing is reduced without gradients";
  const std::string whole = "norms and biases are whole on every rank";
  return {
      honour("zero_optimization.stage", integer, "3",
             "3: ranks share weights; 0: each keeps all of them")
          .from(0, 3),
      honour("zero_optimization.stage3_prefetch_bucket_size", number, "5e7",
             "elements gathered ahead of use: --windows less one, in blocks")
          .from(0),
      honour("zero_optimization.stage3_max_live_parameters", number, "1e9",
             "elements gathered at once: --windows, in blocks")
          .from(0),
      accept("zero_optimization.stage3_max_reuse_distance", number, "1e9",
             "a block is used once in a pass"),
      accept("zero_optimization.stage3_param_persistence_threshold", number, "1e5", whole),
      accept("zero_optimization.stage3_model_persistence_threshold", number, "9e18", whole),
      accept("zero_optimization.stage3_gather_16bit_weights_on_model_save", boolean, "false",
             "nothing is saved"),
      accept("zero_optimization.sub_group_size", number, "1e9", "there is no optimizer"),
      accept("zero_optimization.contiguous_gradients", boolean, "true", reduced),
      accept("zero_optimization.reduce_scatter", boolean, "true", reduced),
      accept("zero_optimization.reduce_bucket_size", number, "5e8", reduced),
      accept("zero_optimization.allgather_partitions", boolean, "true",
             "blocks are gathered whole"),
      accept("zero_optimization.allgather_bucket_size", number, "5e8", "blocks are gathered whole"),
      accept("zero_optimization.overlap_comm", boolean, "true",
             "blocks are gathered while the one before computes"),
      accept("zero_optimization.round_robin_gradients", boolean, "false", reduced),
      accept("zero_optimization.memory_efficient_linear", boolean, "true",
             "products read weights as they are stored"),
      only("zero_optimization.offload_param.device", text, "\"none\"",
           "weights stay in device memory: more ranks share them, and --weights nf4 makes them "
           "smaller"),
      accept("zero_optimization.offload_param.pin_memory", boolean, "true", "nothing is offloaded"),
      accept("zero_optimization.offload_param.buffer_count", integer, "5", "nothing is offloaded"),
      accept("zero_optimization.offload_param.buffer_size", number, "1e8", "nothing is offloaded"),
      accept("zero_optimization.offload_param.max_in_cpu", number, "1e9", "nothing is offloaded"),
      accept("zero_optimization.offload_param.nvme_path", text, "null", "nothing is offloaded"),
      unless_enabled("zero_optimization.offload_optimizer", "there is no optimizer"),
      only("zero_optimization.zero_quantized_weights", boolean, "false",
           "what travels has the bits of the weights: --weights int8 makes both smaller"),
      only("zero_optimization.zero_hpz_partition_size", integer, "1",
           "--replicate N keeps N copies of the model"),
      only("zero_optimization.mics_shard_size", integer, "-1",
           "--replicate N keeps N copies of the model"),
  };
}

std::vector<Option> inference_engine_options() {
  using enum ValueType;
  const std::string batch = "--requests answers so many at once, and the rest after them";
  const std::string kernels = "there is one implementation, which is always used";
  const std::string log = "the last lines tell speed and memory";
  return {
      honour("dtype", text, "\"fp32\"", "--dtype; int8 is --weights int8"),
      honour("bf16.enabled", boolean, "false", "--dtype bf16"),
      honour("fp16.enabled", boolean, "false", "--dtype fp16"),
      honour("tensor_parallel.tp_size", integer, "1", "--tensor").from(1, 1 << 20),
      honour("tensor_parallel.autotp_size", integer, "0", "--tensor; 0: one").from(0, 1 << 20),
      accept("tensor_parallel.enabled", boolean, "true", "tp_size tells"),
      accept("tensor_parallel.tp_grain_size", integer, "64", "shares may be uneven"),
      honour("mp_size", integer, "1", "--tensor").from(1, 1 << 20),
      accept("train_batch_size", integer, "null", batch),
      accept("train_micro_batch_size_per_gpu", integer, "null", batch),
      accept("gradient_accumulation_steps", integer, "null", batch),
      accept("steps_per_print", number, "null", log),
      accept("wall_clock_breakdown", boolean, "false", log),
      accept("memory_breakdown", boolean, "false", log),
      accept("kernel_inject", boolean, "false", kernels),
      accept("use_triton", boolean, "false", kernels),
      accept("triton_autotune", boolean, "false", kernels),
      accept("enable_cuda_graph", boolean, "false",
             "a GPU captures passes of sizes that come again as graphs"),
      accept("replace_method", text, "null", kernels),
      accept("triangular_masking", boolean, "true", "attention is causal"),
      accept("return_tuple", boolean, "true", kernels),
      accept("set_empty_params", boolean, "false", "weights are read once, where they stay"),
      accept("keep_module_on_host", boolean, "false", "there is no second copy of the weights"),
      accept("max_tokens", integer, "1024",
             "the cache follows from prompts and --max-tokens, or --cache-tokens says"),
      accept("min_out_tokens", integer, "1",
             "the cache follows from prompts and --max-tokens, or --cache-tokens says"),
      only("quant", anything, "null", "weights have the formats of --weights: int8, nf4, q4"),
      only("weight_quantization", anything, "null",
           "weights have the formats of --weights: int8, nf4, q4"),
      only("checkpoint", anything, "null", "--model names the folder of weights"),
      only("injection_policy", anything, "null", "--model's config.json says how layers are cut"),
      only("moe", anything, "null", "the models here have no experts"),
      only("optimizer", anything, "null", "it is training's"),
      only("scheduler", anything, "null", "it is training's"),
      only("aio", anything, "null", "nothing is offloaded to NVMe"),
  };
}

const std::vector<Option>& inference_options_table() {
  static const std::vector<Option> all = [] {
    std::vector<Option> table = sharding_options();
    std::ranges::move(inference_engine_options(), std::back_inserter(table));
    return table;
  }();
  return all;
}

/// Names by which init_inference() and older versions call the same.
std::string table_path(std::string path) {
  static const std::map<std::string, std::string> kAlso{
      {"zero", "zero_optimization"}, {"bfloat16", "bf16"},
      {"tp", "tensor_parallel"},     {"replace_with_kernel_inject", "kernel_inject"},
      {"tm", "triangular_masking"},  {"max_out_tokens", "max_tokens"}};
  const std::size_t dot = std::min(path.find('.'), path.size());
  const auto found = kAlso.find(path.substr(0, dot));
  return found == kAlso.end() ? path : found->second + path.substr(dot);
}

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
      const std::string known = table_path(path);
      const auto option = std::ranges::find(inference_options_table(), known, &Option::path);
      if (option != inference_options_table().end()) {
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
    return std::ranges::any_of(inference_options_table(), [&](const Option& option) {
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
    const auto first = std::ranges::find_if(inference_options_table(), [&](const Option& option) {
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
    for (const Option& option : inference_options_table()) {
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
    std::vector<std::string> lines;
    if (!used_.empty()) lines.push_back(fmt::format("{}: {}", path_, fmt::join(used_, ", ")));
    if (!reader_.idle().empty()) {
      lines.push_back(
          fmt::format("{}: changes nothing here: {}", path_, fmt::join(reader_.idle(), "; ")));
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

  const std::string path_;
  const InferenceReader reader_;
  GenerateFlags& flags_;
  std::vector<std::string> used_{};
};

}  // namespace

std::vector<std::string> apply_deepspeed_inference(const std::string& path, GenerateFlags& flags) {
  return InferenceSettings(path, flags).apply();
}

}  // namespace zero
