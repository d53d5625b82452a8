// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// The control group of a process in one hierarchy: a line of /proc/self/cgroup.
struct CgroupPlace {
  std::string controllers;  ///< "cpu,cpuacct"; empty: the unified hierarchy (version 2)
  std::string path;         ///< "/" or "/system.slice/job"
};
/// The line of /proc/self/cgroup that limits processor time in version 1 (`cpu` among the
/// controllers) or, with an empty `controller`, that of version 2; nothing if there is none.
std::optional<CgroupPlace> cgroup_place(std::string_view text, std::string_view controller);

/// Cores' worth of time that version 2's `cpu.max` grants: "150000 100000" is 1.5; nothing for
/// "max" or what is no such file.
std::optional<double> quota_of_cpu_max(std::string_view text);
/// The same of version 1's cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is none.
std::optional<double> quota_of_cfs(std::string_view quota, std::string_view period);

/// The smallest quota of this process's group and the groups around it, in both versions. `root`
/// stands before /proc and /sys: empty but in tests.
std::optional<double> cpu_quota(const std::string& root = "");

}  // namespace zero
