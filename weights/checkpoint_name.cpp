// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_name.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "files/file_system.h"

namespace zero {
namespace {

constexpr std::string_view kRemoved = ".removed";

/// The number at the start of `text`, which loses its digits.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<CheckpointName> read(std::string_view text) {
  constexpr std::string_view kStep = "step_";
  if (!text.starts_with(kStep)) return std::nullopt;
  text.remove_prefix(kStep.size());
  const auto step = take_number<std::int64_t>(text);
  if (!step || *step < 0) return std::nullopt;
  if (text.empty()) return CheckpointName{*step, FolderState::committed};
  if (text == ".old") return CheckpointName{*step, FolderState::old};
  if (text == ".partial") return CheckpointName{*step, FolderState::partial};
  if (text == kRemoved) return CheckpointName{*step, FolderState::removed};
  if (!text.starts_with(".removed.")) return std::nullopt;
  text.remove_prefix(kRemoved.size() + 1);
  const auto copy = take_number<int>(text);
  if (!copy || *copy < 2) return std::nullopt;
  return CheckpointName{*step, FolderState::removed, *copy};
}

std::filesystem::path without_slashes(const std::string& path) {
  const std::size_t last = path.find_last_not_of('/');
  return last == path.npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

}  // namespace

std::string text_of(const CheckpointName& name) {
  std::string text = fmt::format("step_{:08}", name.step);
  switch (name.state) {
    case FolderState::committed:
      return text;
    case FolderState::old:
      return text + ".old";
    case FolderState::partial:
      return text + ".partial";
    case FolderState::removed:
      break;
  }
  text += kRemoved;
  return name.copy == 1 ? text : fmt::format("{}.{}", text, name.copy);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
  const std::optional<CheckpointName> name = read(text);
  if (!name || text_of(*name) != text) return std::nullopt;  // other zeros, or a rest
  return name;
}

std::string checkpoint_path(const std::string& folder, const CheckpointName& name) {
  return (std::filesystem::path(folder) / text_of(name)).string();
}

std::string name_of_path(const std::string& path) {
  return without_slashes(path).filename().string();
}

std::string folder_of_path(const std::string& path) {
  return files::folder_of(without_slashes(path).string());
}

}  // namespace zero
