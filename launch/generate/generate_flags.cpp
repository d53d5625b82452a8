// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "device/device.h"
#include "launch/checkpoints/checkpoint_tool.h"
#include "launch/config/configuration.h"
#include "launch/config/similar_names.h"
#include "launch/process/device_choice.h"
#include "launch/process/quantity.h"
#include "launch/rendezvous/cores.h"
#include "launch/telemetry/output.h"
#include "weights/hf/advice.h"

namespace zero {
nlohmann::json parse_template_values(std::string_view text) {
  constexpr const char* kFlag = "--chat-template-kwargs";
  nlohmann::json values = parse_json_text(text, kFlag);
  ZERO_CHECK(values.is_object(),
             "{}: found {}, expected an object, as {{\"enable_thinking\": false}}", kFlag,
             printable_line(text));
  return values;
}

MatrixRoles parse_kept_matrices(std::string_view names) {
  std::vector<std::string> known;
  for (const MatrixRole role : kMatrixRoles) known.emplace_back(name_of(role));
  MatrixRoles keep;
  while (true) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const std::string name(names.substr(0, comma));
    const auto* const role =
        std::ranges::find(kMatrixRoles, name, [](MatrixRole each) { return name_of(each); });
    if (role == kMatrixRoles.end()) {
      fail("--keep: \"{}\" is no matrix of a model{}; expected some of {}", printable_line(name),
           did_you_mean(name, known), fmt::join(known, ", "));
    }
    keep.add(*role);
    if (comma == names.size()) return keep;
    names.remove_prefix(comma + 1);
  }
}

int parse_tensor(const std::string& text) {
  if (text == "auto") return GenerateFlags::kAutoTensor;
  constexpr int kMost = 1 << 20;
  const auto ranks = whole_number(text, 1, kMost);
  ZERO_CHECK(ranks, "--tensor is {}; expected auto, or 1 to {}", printable_line(text), kMost);
  return *ranks;
}

int replicas_of(const GenerateFlags& flags, int world, int tensor) {
  if (flags.gave("--replicate") || flags.sharded.stage.value_or(3) != 0) return flags.replicate;
  return std::max(1, world / tensor);
}

void say_line(const std::string& line) { print_error("zero_generate: {}\n", line); }

std::string find_model_folder(files::FileSystem& files, const std::string& path,
                              const std::function<void(const std::string& line)>& say,
                              std::string_view flag) {
  using files::PathKind;
  const PathKind kind = files.kind_of(path);
  ZERO_CHECK(kind != PathKind::file,
             "{} {}: is a file; expected the folder of a model: weights in safetensors with "
             "config.json beside them, as zero_train writes with \"save_weights\": \"OUT/\"{}",
             flag, path,
             kind != PathKind::file                                    ? ""
             : std::filesystem::path(path).filename() == "config.json" ? "; give its folder"
                                                                       : folder_advice(path));
  ZERO_CHECK(kind == PathKind::folder,
             "{} {}: is not a folder; expected a Hugging Face folder, a checkpoint, or a folder of "
             "checkpoints{}",
             flag, path, folder_advice(path));
  const auto has_config = [&](const std::string& folder) {
    return files.kind_of(folder + "/config.json") != PathKind::missing;
  };
  if (has_config(path)) return path;
  checkpoint_tool::Newest newest;
  try {
    newest = checkpoint_tool::newest_checkpoint(files, path);
  } catch (const Error& error) {
    const std::string advice = folder_advice(path);
    fail("{} {}: has no config.json, as a Hugging Face folder has{}", flag, path,
         advice.empty() ? fmt::format("; {}", error.what()) : advice);
  }
  for (const std::string& why : newest.passed_over) {
    say("warning: passed over a checkpoint: " + printable_line(why));
  }
  if (newest.path != path) say(fmt::format("{} {}: the weights of {}", flag, path, newest.path));
  const std::string weights = (std::filesystem::path(newest.path) / "weights").string();
  ZERO_CHECK(has_config(weights),
             "{} {}: {} has no config.json; expected a checkpoint of zero_train", flag, path,
             weights);
  return weights;
}

int threads_of(const GenerateFlags& flags, int local_ranks) {
  if (flags.threads == "auto") return choose_threads(core_facts(local_ranks)).threads;
  const auto threads = whole_number(flags.threads, 1, 1024);
  ZERO_CHECK(threads, "--threads is {}; expected auto, or 1 to 1024", flags.threads);
  return *threads;
}

DeviceKind device_kind(const GenerateFlags& flags, int ranks) {
  ZERO_CHECK(ranks == 1 || flags.device != "cuda",
             "--device cuda: {} ranks; expected one: several answer on CPUs", ranks);
  if (flags.device != "auto") return flags.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  if (ranks > 1) return DeviceKind::cpu;
  return choose_device(device_facts(1, RanksAre::processes)).kind;
}

std::string device_note(const GenerateFlags& flags, int ranks) {
  if (flags.device != "auto" || ranks > 1) return "";
  const auto missing = device_facts(1, RanksAre::processes).missing;
  if (!missing) return "";
  return fmt::format(
      "--device auto: {}: it computes on the CPU; for the GPU {}; --device cpu leaves this line "
      "out",
      missing->why, missing->remedy);
}

std::int64_t free_for_plans_on_gpu() {
  const std::int64_t free = open_device(DeviceKind::cuda, 1)->capacity().free;
  ZERO_CHECK(free > cuda::kLeftToLibraries,
             "{} of the GPU are free, expected more than the {} that CUDA's libraries, kernels and "
             "graphs may take; end what else runs there",
             size_text(free), size_text(cuda::kLeftToLibraries));
  return free - cuda::kLeftToLibraries;
}

std::unique_ptr<Device> open_device(DeviceKind kind, int threads, const BytesByClass& reserve) {
  if (kind == DeviceKind::cpu) return cpu::open({.threads = threads});
  return cuda::open({.index = 0, .reserve = reserve});
}

}  // namespace zero
