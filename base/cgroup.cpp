// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file_text.h"
#include "base/whole_number.h"

namespace zero {
namespace {

std::optional<double> share(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// Of two limits, each of which may be none.
std::optional<double> smaller(std::optional<double> one, std::optional<double> other) {
  return one && other ? std::min(one, other) : one ? one : other;
}

bool lists(std::string_view names, std::string_view wanted) {
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    if (names.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

/// A limit of a control group, given its folder.
using LimitIn = std::optional<double> (*)(const std::filesystem::path& group);

std::optional<double> quota_in(const std::filesystem::path& group) {
  const std::string text = file_text(group / "cpu.max");
  if (!text.empty()) return quota_of_cpu_max(text);
  return quota_of_cfs(file_text(group / "cpu.cfs_quota_us"),
                      file_text(group / "cpu.cfs_period_us"));
}

std::optional<double> number_of(const std::filesystem::path& path) {
  const auto number = leading_number(file_text(path));
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

/// What the group may take in all; nothing if any number of bytes. Above memory.high the kernel
/// slows a group down until it hardly goes on.
std::optional<double> memory_limit_in(const std::filesystem::path& group) {
  const auto unified = smaller(number_of(group / "memory.max"), number_of(group / "memory.high"));
  return unified ? unified : number_of(group / "memory.limit_in_bytes");
}

/// What the group may still take: what the kernel keeps of files, of those in use ("active") too,
/// and in its own tables gives way. At most the limit, also where the files of /sys are of
/// different moments.
std::optional<double> memory_left_in(const std::filesystem::path& group) {
  const auto most = memory_limit_in(group);
  const auto unified = number_of(group / "memory.current");
  const auto now = unified ? unified : number_of(group / "memory.usage_in_bytes");
  if (!most || !now) return std::nullopt;
  const std::string stat = file_text(group / "memory.stat");
  const auto kept = [&](std::string_view key) {
    return static_cast<double>(number_behind(stat, key).value_or(0));
  };
  const double gives_way =
      unified ? kept("inactive_file ") + kept("active_file ") + kept("slab_reclaimable ")
              : kept("total_inactive_file ") + kept("total_active_file ");
  return *most - std::max(0.0, *now - gives_way);
}

/// The smallest limit from `mount`/`path` up to `mount`. Levels of a path from another namespace do
/// not exist below the mount; only existing levels count.
std::optional<double> smallest(LimitIn limit_in, const std::filesystem::path& mount,
                               const std::string& path) {
  std::optional<double> least;
  std::filesystem::path inside = std::filesystem::path(path).relative_path();
  while (true) {
    least = smaller(least, limit_in(mount / inside));
    if (inside.empty()) return least;
    inside = inside.parent_path();
  }
}

/// The smallest limit of this process's groups of both versions; `controller`: of version 1.
std::optional<double> smallest_of_process(LimitIn limit_in, const std::string& controller,
                                          const std::string& root) {
  const std::string text = file_text(root + "/proc/self/cgroup");
  const std::filesystem::path mounts = root + "/sys/fs/cgroup";
  std::vector<std::optional<double>> found;
  if (const auto place = cgroup_place(text, "")) {
    found.push_back(smallest(limit_in, mounts, place->path));
    found.push_back(smallest(limit_in, mounts / "unified", place->path));
  }
  if (const auto place = cgroup_place(text, controller)) {
    found.push_back(smallest(limit_in, mounts / place->controllers, place->path));
    found.push_back(smallest(limit_in, mounts / controller, place->path));
  }
  std::optional<double> least;
  for (const auto& limit : found) least = smaller(least, limit);
  return least;
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
  return share(leading_number(text.substr(0, space)), leading_number(text.substr(space + 1)));
}

std::optional<double> quota_of_cfs(std::string_view quota, std::string_view period) {
  return share(leading_number(quota), leading_number(period));
}

std::optional<double> cpu_quota(const std::string& root) {
  return smallest_of_process(quota_in, "cpu", root);
}

namespace {

/// The bytes in /proc/meminfo behind `key`, or the smallest of `limit_in`, if that is less.
std::optional<std::int64_t> memory_of_host(std::string_view key, LimitIn limit_in,
                                           const std::string& root) {
  const auto kilobytes = number_behind(file_text(root + "/proc/meminfo"), key);
  if (!kilobytes) return std::nullopt;
  const double machine = static_cast<double>(*kilobytes) * 1024;
  const double group = smallest_of_process(limit_in, "memory", root).value_or(machine);
  return static_cast<std::int64_t>(std::max(0.0, std::min(machine, group)));
}

}  // namespace

std::optional<std::int64_t> available_memory(const std::string& root) {
  return memory_of_host("MemAvailable:", memory_left_in, root);
}

std::optional<std::int64_t> total_memory(const std::string& root) {
  return memory_of_host("MemTotal:", memory_limit_in, root);
}

namespace {

/// The group at `path`, or the nearest one above it that limits memory: those below a limit share
/// it (Slurm has a group for each task), and kills of all of them are counted there.
std::string limited_group(const std::filesystem::path& mount, const std::string& path) {
  std::filesystem::path inside = std::filesystem::path(path).relative_path();
  while (!number_of(mount / inside / "memory.max")) {
    if (inside.empty()) return path;
    inside = inside.parent_path();
  }
  return inside.string();
}

}  // namespace

std::optional<std::int64_t> out_of_memory_kills(const std::string& root) {
  const std::string text = file_text(root + "/proc/self/cgroup");
  const std::filesystem::path mounts = root + "/sys/fs/cgroup";
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::filesystem::path& mount, const std::string& path,
                       const char* name) {
    files.push_back(mount / std::filesystem::path(path).relative_path() / name);
    files.push_back(mount / name);  // in a container that sees its own group alone
  };
  if (const auto place = cgroup_place(text, "")) {
    add(mounts, limited_group(mounts, place->path), "memory.events");
    add(mounts / "unified", place->path, "memory.events");
  }
  // Groups of version 1 count their own kills alone, and Slurm has one for each task.
  files.push_back(root + "/proc/vmstat");
  for (const auto& file : files) {
    if (const auto kills = number_behind(file_text(file), "oom_kill ")) return kills;
  }
  return std::nullopt;
}

}  // namespace zero
