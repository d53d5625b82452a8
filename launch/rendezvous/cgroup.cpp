// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/cgroup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace zero {
namespace {

std::optional<std::string> text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The whole number at the start of `text`.
std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<double> share(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

bool lists(std::string_view names, std::string_view wanted) {
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    if (names.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

std::optional<double> quota_in(const std::filesystem::path& group) {
  if (const auto text = text_of(group / "cpu.max")) return quota_of_cpu_max(*text);
  const auto quota = text_of(group / "cpu.cfs_quota_us");
  const auto period = text_of(group / "cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return quota_of_cfs(*quota, *period);
}

/// The smallest quota from `mount`/`path` up to `mount`. Levels of a path from another namespace do
/// not exist below the mount; only existing levels count.
std::optional<double> smallest(const std::filesystem::path& mount, const std::string& path) {
  std::optional<double> least;
  std::filesystem::path inside = std::filesystem::path(path).relative_path();
  while (true) {
    if (const auto quota = quota_in(mount / inside); quota && (!least || *quota < *least)) {
      least = quota;
    }
    if (inside.empty()) return least;
    inside = inside.parent_path();
  }
}

}  // namespace

std::optional<CgroupPlace> cgroup_place(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    const bool wanted = controller.empty() ? names.empty() : lists(names, controller);
    if (wanted) {
      return CgroupPlace{.controllers = std::string(names),
                         .path = std::string(line.substr(second + 1))};
    }
  }
  return std::nullopt;
}

std::optional<double> quota_of_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return share(number_in(text.substr(0, space)), number_in(text.substr(space + 1)));
}

std::optional<double> quota_of_cfs(std::string_view quota, std::string_view period) {
  return share(number_in(quota), number_in(period));
}

std::optional<double> cpu_quota(const std::string& root) {
  const auto text = text_of(root + "/proc/self/cgroup");
  if (!text) return std::nullopt;
  const std::filesystem::path mounts = root + "/sys/fs/cgroup";
  std::vector<std::optional<double>> found;
  if (const auto place = cgroup_place(*text, "")) {
    found.push_back(smallest(mounts, place->path));
    found.push_back(smallest(mounts / "unified", place->path));
  }
  if (const auto place = cgroup_place(*text, "cpu")) {
    found.push_back(smallest(mounts / place->controllers, place->path));
    found.push_back(smallest(mounts / "cpu", place->path));
  }
  std::optional<double> least;
  for (const auto& quota : found) {
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

}  // namespace zero
