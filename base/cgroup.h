// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// The control group of a process in one hierarchy: a line of /proc/self/cgroup.
struct CgroupPlace {
  std::string controllers;  ///< "cpu,cpuacct"; empty: the unified hierarchy (version 2)
  std::string path;         ///< "/" or "/system.slice/job"
};
/// The place of the process in the hierarchy that limits processor time in version 1 (`cpu` among
/// the controllers) or, with an empty `controller`, in version 2; nothing if `text`
/// (/proc/self/cgroup) has no such line.
std::optional<CgroupPlace> cgroup_place(std::string_view text, std::string_view controller);

/// The quota in version 2's `cpu.max`, in cores: "150000 100000" is 1.5; nothing for "max" or if
/// the text is not such a file.
std::optional<double> quota_of_cpu_max(std::string_view text);
/// The quota in version 1's cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is none.
std::optional<double> quota_of_cfs(std::string_view quota, std::string_view period);

/// The smallest quota, in cores, of this process's control group and its ancestors, in both
/// versions. Tests set `root`, a prefix of /proc and /sys.
std::optional<double> cpu_quota(const std::string& root = "");

/// Bytes of memory that this process can still take: what the machine has available, or what the
/// smallest limit of its control group and its ancestors leaves. Nothing if /proc does not say.
std::optional<std::int64_t> available_memory(const std::string& root = "");
/// Bytes of memory that this process can have in all: the machine's, or the smallest limit of its
/// control group and its ancestors. Nothing if /proc does not say.
std::optional<std::int64_t> total_memory(const std::string& root = "");

/// Processes that the kernel has killed for lack of memory: of this process's control group, or of
/// the nearest one above it that limits memory, and of those below; of the whole machine where
/// groups do not count so (version 1). Nothing if neither does.
std::optional<std::int64_t> out_of_memory_kills(const std::string& root = "");

}  // namespace zero
