// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/checkpoints/checkpoint_tool.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/message_text.h"
#include "weights/checkpoint_reader.h"
#include "weights/hf/advice.h"

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

bool is_checkpoint(files::FileSystem& files, const std::string& path) {
  return files.kind_of(path + "/index.json") == files::PathKind::file ||
         files.kind_of(path + "/COMMIT") == files::PathKind::file;
}

void check_folder(files::FileSystem& files, const std::string& path) {
  ZERO_CHECK(files.kind_of(path) == files::PathKind::folder,
             "{} is no folder; give that of a run's checkpoints, or of one", path);
}

/// Whether a folder in `path`, if that is a folder, has the name of a checkpoint.
bool holds_checkpoints(files::FileSystem& files, const std::string& path) {
  bool any = false;
  const CheckpointFailure ignored = checkpoint_failure_of([&] {
    if (files.kind_of(path) != files::PathKind::folder) return;
    for (const std::string& name : files.list(path)) any = any || parse_checkpoint_name(name);
  });
  return any && !ignored;
}

/// That `path` holds no checkpoint, and which folder near it does, or what it holds instead.
std::string no_checkpoint(files::FileSystem& files, const std::string& path) {
  const std::string text = fmt::format("{} holds no checkpoint", path);
  const std::string parent =
      folder_of_path(std::filesystem::absolute(path).lexically_normal().string());
  if (is_checkpoint(files, path))
    return fmt::format("{}; it is one, in the folder {}", text, parent);
  if (is_checkpoint(files, parent)) return fmt::format("{}; {} is one", text, parent);
  for (const std::string& name : files.list(path)) {
    const std::string below = (std::filesystem::path(path) / name).string();
    if (holds_checkpoints(files, below)) return fmt::format("{}; {} does", text, below);
  }
  std::string advice = folder_advice(path);
  if (advice.empty() && files.kind_of(path + "/config.json") == files::PathKind::file) {
    advice = "; it is the folder of a model";
  }
  if (advice.empty()) return text;
  return fmt::format(
      "{}{}; zero_ckpt takes checkpoints of zero_train alone, zero_generate and model.hf take the "
      "folders of models",
      text, advice);
}

constexpr const char* kUnreadable =
    "cannot be read, and may be complete (does this user have the permission?)";
constexpr const char* kGone = "was removed meanwhile";

/// Whether the checkpoint `folder`, which was found, is gone: a live run prunes. Links to nothing
/// are there.
bool is_gone(files::FileSystem& files, const std::string& folder) {
  bool gone = false;
  const CheckpointFailure ignored = checkpoint_failure_of(
      [&] { gone = files.kind_of(folder) == files::PathKind::missing && !files.is_link(folder); });
  return gone && !ignored;
}

enum class Condition { good, faulty, gone };

/// Tells of the faults that were found in the checkpoint `folder`.
Condition judge(files::FileSystem& files, const std::string& folder,
                const std::vector<CheckpointFault>& faults, Answer& answer) {
  if (faults.empty()) return Condition::good;
  if (is_gone(files, folder)) {
    answer.text += fmt::format("{}: {}\n", folder, kGone);
    return Condition::gone;
  }
  for (const CheckpointFault& fault : faults) {
    answer.text += fmt::format("{}: {}\n", fault.damaged ? "damaged" : "unreadable",
                               printable_text(fault.reason));
    answer.verdict =
        std::max(answer.verdict, fault.damaged ? Answer::Verdict::no : Answer::Verdict::unknown);
  }
  return Condition::faulty;
}

/// Warns of what is in the folder of a whole checkpoint, and not of it or not there.
std::string warnings_of(files::FileSystem& files, const std::string& folder) {
  const CheckpointReader reader(files, folder);
  std::set<std::string> own{"COMMIT", "index.json"};
  std::set<std::string> folders;
  for (const CheckpointIndex::File& file : reader.index().files) {
    own.insert(file.name);
    folders.insert(file.name.substr(0, file.name.find('/')));
  }
  std::string text;
  const auto look = [&](const std::string& name) {
    const std::string path = printable_line(fmt::format("{}/{}", folder, name));
    if (!own.contains(name) && !folders.contains(name)) {
      text += fmt::format(
          "warning: {}: is not of the checkpoint: its index.json does not list it\n", path);
    } else if (files.is_link(fmt::format("{}/{}", folder, name))) {
      text += fmt::format(
          "warning: {}: is a symbolic link: a copy of the checkpoint may not have the file\n",
          path);
    }
  };
  for (const std::string& name : files.list(folder)) {
    look(name);
    if (!folders.contains(name)) continue;
    for (const std::string& each : files.list(fmt::format("{}/{}", folder, name))) {
      look(fmt::format("{}/{}", name, each));
    }
  }
  return text;
}

}  // namespace

void for_each_chunk(
    CheckpointReader& reader, const CheckpointIndex::Tensor& tensor,
    const std::function<void(std::int64_t begin, std::span<const float> values)>& visit) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 18;  // elements
  std::vector<float> values(static_cast<std::size_t>(std::min(kChunk, tensor.count())));
  for (std::int64_t begin = 0; begin < tensor.count(); begin += kChunk) {
    const auto count = static_cast<std::size_t>(std::min(kChunk, tensor.count() - begin));
    const std::span<float> chunk = std::span(values).first(count);
    reader.read(tensor, begin, chunk);
    visit(begin, chunk);
  }
}

Newest newest_checkpoint(files::FileSystem& files, const std::string& path) {
  check_folder(files, path);
  if (is_checkpoint(files, path)) return {path};
  std::string reasons;
  bool unreadable = false;
  Newest newest;
  for (const FoundCheckpoint& found : find_checkpoints(files, path)) {
    newest.path = found.path;
    if (found.complete()) return newest;
    reasons +=
        fmt::format("; {}: {}{}", found.path, found.unreadable ? "unreadable: " : "", found.fault);
    unreadable = unreadable || found.unreadable;
    if (found.name.state != FolderState::partial) newest.passed_over.push_back(found.fault);
  }
  ZERO_CHECK(!reasons.empty(), "{}", no_checkpoint(files, path));
  fail("{} holds no complete checkpoint{}{}", path, unreadable ? " that can be read" : "", reasons);
}

std::string find_checkpoint(files::FileSystem& files, const std::string& path) {
  return newest_checkpoint(files, path).path;
}

Answer list(files::FileSystem& files, const std::string& folder, Form form) {
  check_folder(files, folder);
  Answer answer;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (FoundCheckpoint& found : find_checkpoints(files, folder)) {
    if (is_gone(files, found.path)) {
      found.fault = kGone;
      found.unreadable = false;
    }
    const std::optional<std::string> time = time_of(found);
    all.push_back({{"step", found.name.step},
                   {"path", found.path},
                   {"bytes", found.complete() ? nlohmann::ordered_json(found.bytes)
                                              : nlohmann::ordered_json()},
                   {"time", time ? nlohmann::ordered_json(*time) : nlohmann::ordered_json()},
                   {"complete", found.complete()},
                   {"unreadable", found.unreadable},
                   {"fault", found.fault}});
    answer.text +=
        fmt::format("{:>10}  {:>10}  {:<20}  {}\n", found.name.step,
                    found.complete() ? decimal_bytes(found.bytes) : "-", time.value_or("-"),
                    found.complete() ? found.path
                                     : fmt::format("{}: {}: {}", found.path,
                                                   found.unreadable ? kUnreadable : "not complete",
                                                   found.fault));
  }
  if (form == Form::json) {
    answer.text = all.dump(2) + "\n";
  } else if (all.empty()) {
    answer.text = no_checkpoint(files, folder) + "\n";
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
    const Condition bytes = judge(files, folder, verify_checkpoint(files, folder), answer);
    if (bytes != Condition::good) return bytes;
    answer.text += fmt::format("{}: every byte is as it was saved\n", folder);
    const CheckpointFailure failure =
        checkpoint_failure_of([&] { answer.text += warnings_of(files, folder); });
    if (!failure) return Condition::good;
    return judge(files, folder, {{.reason = failure.why, .damaged = failure.damaged}}, answer);
  };
  if (is_checkpoint(files, path)) {
    if (check(path) == Condition::gone) answer.verdict = Answer::Verdict::unknown;
    return answer;
  }
  const std::vector<FoundCheckpoint> all = find_checkpoints(files, path);
  ZERO_CHECK(!all.empty(), "{}", no_checkpoint(files, path));
  for (const FoundCheckpoint& found : all) {
    if (found.name.state != FolderState::partial) {
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
                            decimal_bytes(index.bytes()), index.files.size(),
                            printable_text(index.extra.dump(2)));
  for (const CheckpointIndex::Tensor& tensor : index.tensors) {
    answer.text += fmt::format("{:<10} {:<48} {:<20} {} at {}\n", name_of(tensor.kind),
                               printable_line(tensor.name), shape_text(tensor.shape),
                               printable_line(index.files[tensor.file].name), tensor.offset);
  }
  return answer;
}

Answer prune(files::FileSystem& files, const std::string& folder, const KeepSteps& keep) {
  check_folder(files, folder);
  const std::vector<FoundCheckpoint> all = find_checkpoints(files, folder);
  ZERO_CHECK(!all.empty(), "{}", no_checkpoint(files, folder));
  Answer answer;
  std::set<std::int64_t> good;
  std::set<std::int64_t> kept;
  for (const FoundCheckpoint& found : all) {
    if (std::ssize(good) == keep.last) break;
    if (!found.complete()) continue;
    const Condition condition =
        judge(files, found.path, verify_checkpoint(files, found.path), answer);
    if (condition == Condition::gone) continue;
    kept.insert(found.name.step);
    if (condition == Condition::good) {
      good.insert(found.name.step);
    } else {
      answer.text += fmt::format("{}: is kept, and does not count\n", found.path);
    }
  }
  Pruned pruned;
  if (!kept.empty()) {
    // A run may commit another one meanwhile: it is not counted either.
    pruned = prune_checkpoints(files, folder,
                               {.last = static_cast<int>(kept.size()), .every = keep.every},
                               *kept.rbegin());
  }
  for (const std::int64_t step : pruned.steps) {
    answer.text += fmt::format("removed step {}\n", step);
  }
  if (pruned.steps.empty() && pruned.notes.empty()) answer.text += "nothing to remove\n";
  for (const std::string& note : pruned.notes) answer.text += note + "\n";
  if (!pruned.notes.empty()) answer.verdict = Answer::Verdict::unknown;
  return answer;
}

}  // namespace zero::checkpoint_tool
