// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/checkpoint_tool.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/decimal_bytes.h"
#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf/file_header.h"

namespace zero::checkpoint_tool {
namespace {

/// When the checkpoint was committed, or, if it was not, last changed; nothing if that is unknown.
std::optional<std::string> time_of(const FoundCheckpoint& found) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = found.path;
  const auto time = fs::last_write_time(found.complete() ? folder / "COMMIT" : folder, error);
  if (error) return std::nullopt;
  const auto system = std::chrono::file_clock::to_sys(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::floor<std::chrono::seconds>(system)));
}

std::int64_t bytes_of(const CheckpointIndex& index) {
  std::int64_t bytes = 0;
  for (const CheckpointIndex::File& file : index.files) bytes += file.bytes;
  return bytes;
}

bool is_checkpoint(files::FileSystem& files, const std::string& path) {
  return files.kind_of(path + "/index.json") == files::PathKind::file ||
         files.kind_of(path + "/COMMIT") == files::PathKind::file;
}

void check_folder(files::FileSystem& files, const std::string& path) {
  ZERO_CHECK(files.kind_of(path) == files::PathKind::folder,
             "{} is no folder; give that of a run's checkpoints, or of one", path);
}

}  // namespace

std::string find_checkpoint(files::FileSystem& files, const std::string& path) {
  check_folder(files, path);
  if (is_checkpoint(files, path)) return path;
  std::string reasons;
  for (const FoundCheckpoint& found : find_checkpoints(files, path)) {
    if (found.complete()) return found.path;
    reasons += fmt::format("; {}: {}", found.path, found.fault);
  }
  fail("{} holds no complete checkpoint{}", path, reasons);
}

Answer list(files::FileSystem& files, const std::string& folder, Form form) {
  check_folder(files, folder);
  Answer answer;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const FoundCheckpoint& found : find_checkpoints(files, folder)) {
    const std::optional<std::string> time = time_of(found);
    std::optional<std::int64_t> bytes;
    if (found.complete()) bytes = bytes_of(CheckpointReader(files, found.path).index());
    all.push_back({{"step", found.name.step},
                   {"path", found.path},
                   {"bytes", bytes ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json()},
                   {"time", time ? nlohmann::ordered_json(*time) : nlohmann::ordered_json()},
                   {"complete", found.complete()},
                   {"fault", found.fault}});
    answer.text += fmt::format("{:>10}  {:>10}  {:<20}  {}\n", found.name.step,
                               bytes ? decimal_bytes(*bytes) : "-", time.value_or("-"),
                               found.complete()
                                   ? found.path
                                   : fmt::format("{}: not complete: {}", found.path, found.fault));
  }
  if (form == Form::json) {
    answer.text = all.dump(2) + "\n";
  } else if (all.empty()) {
    answer.text = fmt::format("{} holds no checkpoint\n", folder);
  } else {
    answer.text =
        fmt::format("{:>10}  {:>10}  {:<20}  {}\n", "step", "size", "saved", "checkpoint") +
        answer.text;
  }
  return answer;
}

Answer verify(files::FileSystem& files, const std::string& path) {
  check_folder(files, path);
  Answer answer;
  const auto check = [&](const std::string& folder) {
    const std::vector<CheckpointFault> faults = verify_checkpoint(files, folder);
    for (const CheckpointFault& fault : faults)
      answer.text += fmt::format("damaged: {}\n", fault.reason);
    if (faults.empty()) answer.text += fmt::format("{}: every byte is as it was saved\n", folder);
    if (!faults.empty()) answer.verdict = Answer::Verdict::no;
  };
  if (is_checkpoint(files, path)) {
    check(path);
    return answer;
  }
  const std::vector<FoundCheckpoint> all = find_checkpoints(files, path);
  ZERO_CHECK(!all.empty(), "{} holds no checkpoint", path);
  for (const FoundCheckpoint& found : all) {
    if (found.name.state == FolderState::committed) {
      check(found.path);
    } else {
      answer.text += fmt::format("{}: not complete: {}\n", found.path, found.fault);
    }
  }
  return answer;
}

Answer show(files::FileSystem& files, const std::string& path) {
  const CheckpointReader reader(files, find_checkpoint(files, path));
  const CheckpointIndex& index = reader.index();
  Answer answer;
  answer.text = fmt::format("{}: step {}, {} in {} files\n\n{}\n\n", reader.folder(), index.step,
                            decimal_bytes(bytes_of(index)), index.files.size(),
                            printable_text(index.extra.dump(2)));
  for (const CheckpointIndex::Tensor& tensor : index.tensors) {
    answer.text += fmt::format("{:<10} {:<48} {:<20} {} at {}\n", state_kind_name(tensor.kind),
                               printable_line(tensor.name), shape_text(tensor.shape),
                               printable_line(index.files[tensor.file].name), tensor.offset);
  }
  return answer;
}

Answer prune(files::FileSystem& files, const std::string& folder, const KeepSteps& keep) {
  check_folder(files, folder);
  const Pruned pruned = prune_checkpoints(files, folder, keep);
  Answer answer;
  for (const std::int64_t step : pruned.steps) {
    answer.text += fmt::format("removed step {}\n", step);
  }
  if (pruned.steps.empty()) answer.text = "nothing to remove\n";
  for (const std::string& note : pruned.notes) answer.text += note + "\n";
  return answer;
}

}  // namespace zero::checkpoint_tool
