// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/scratch.h"

namespace zero {
namespace {

TEST(Cgroups, PlacesAreReadFromBothVersions) {
  const std::string text =
      "9:name=systemd:/x\n4:cpu,cpuacct:/jobs/1\n3:cpuset:/set\nnonsense\n0::/user.slice/a:b\n";
  EXPECT_EQ(cgroup_place(text, "cpu")->controllers, "cpu,cpuacct");
  EXPECT_EQ(cgroup_place(text, "cpu")->path, "/jobs/1");
  EXPECT_EQ(cgroup_place(text, "")->path, "/user.slice/a:b");
  EXPECT_FALSE(cgroup_place(text, "memory"));
  EXPECT_FALSE(cgroup_place("", ""));
}

TEST(Cgroups, QuotasAreCores) {
  EXPECT_EQ(quota_of_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(quota_of_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(quota_of_cpu_max("150000"), std::nullopt);
  EXPECT_EQ(quota_of_cpu_max("100 0"), std::nullopt);
  EXPECT_EQ(quota_of_cfs("400000\n", "100000\n"), 4.0);
  EXPECT_EQ(quota_of_cfs("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(quota_of_cfs("", "100000"), std::nullopt);
}

class CgroupFiles : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(
        (std::filesystem::path(folder_.path()) / path).parent_path());
    folder_.write(path, text);
  }
  std::optional<double> quota() const { return cpu_quota(folder_.path()); }
  std::optional<std::int64_t> memory() const { return available_memory(folder_.path()); }
  std::optional<std::int64_t> kills() const { return out_of_memory_kills(folder_.path()); }
  std::optional<std::int64_t> total() const { return total_memory(folder_.path()); }

 private:
  testing::Scratch folder_;
};

TEST_F(CgroupFiles, TheSmallestQuotaOnTheWayUpCounts) {
  EXPECT_EQ(quota(), std::nullopt);
  write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  write("sys/fs/cgroup/a/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3.0);
  write("sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CgroupFiles, VersionOneInAContainerHasItsQuotaAtTheMount) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/of/the/host\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupFiles, MemoryIsWhatTheMachineOrTheSmallestLimitLeaves) {
  EXPECT_EQ(memory(), std::nullopt);
  write("proc/meminfo", "MemTotal:       90 kB\nMemFree: 1 kB\nMemAvailable:      50 kB\n");
  EXPECT_EQ(memory(), 51200);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "10\n");
  EXPECT_EQ(memory(), 51200);
  write("sys/fs/cgroup/a/memory.max", "40000\n");
  write("sys/fs/cgroup/a/memory.current", "30000\n");
  EXPECT_EQ(memory(), 10000);
  write("sys/fs/cgroup/a/memory.stat", "anon 1\nxinactive_file 7\ninactive_file 5000\n");
  EXPECT_EQ(memory(), 15000);
  write("sys/fs/cgroup/a/memory.current", "50000\n");
  EXPECT_EQ(memory(), 0);
  write("sys/fs/cgroup/a/memory.stat",
        "inactive_file 5000\nactive_file 9000\nslab_reclaimable 700\nslab_unreclaimable 300\n");
  EXPECT_EQ(memory(), 4700) << "files in use give way too";
}

TEST_F(CgroupFiles, MemoryAboveWhichAGroupIsSlowedDownDoesNotCount) {
  write("proc/meminfo", "MemTotal: 90 kB\nMemAvailable: 80 kB\n");
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.current", "1000\n");
  write("sys/fs/cgroup/a/memory.max", "40000\n");
  write("sys/fs/cgroup/a/memory.high", "max\n");
  EXPECT_EQ(memory(), 39000);
  write("sys/fs/cgroup/a/memory.high", "30000\n");
  EXPECT_EQ(memory(), 29000);
  EXPECT_EQ(total(), 30000);
  write("sys/fs/cgroup/a/memory.max", "max\n");
  EXPECT_EQ(memory(), 29000);
  write("sys/fs/cgroup/a/memory.max", "20000\n");
  EXPECT_EQ(memory(), 19000);
  EXPECT_EQ(total(), 20000);
}

TEST_F(CgroupFiles, MemoryOfVersionOneIsLimitedToo) {
  write("proc/meminfo", "MemAvailable: 50 kB\n");
  write("proc/self/cgroup", "7:memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 90\ntotal_inactive_file 500\n");
  EXPECT_EQ(memory(), 1500);
  write("sys/fs/cgroup/memory/job/memory.stat",
        "total_inactive_file 500\ntotal_active_file 2000\n");
  EXPECT_EQ(memory(), 3500);
}

TEST_F(CgroupFiles, KillsForLackOfMemoryAreThoseOfTheGroupOrTheMachine) {
  EXPECT_EQ(kills(), std::nullopt);
  write("proc/vmstat", "oom_kill_other 7\nnr_free_pages 1\noom_kill 3\n");
  EXPECT_EQ(kills(), 3);
  write("proc/self/cgroup", "7:cpu,memory:/job/task_0\n");
  write("sys/fs/cgroup/cpu,memory/job/task_0/memory.oom_control", "under_oom 0\noom_kill 0\n");
  EXPECT_EQ(kills(), 3) << "those of task_1 are not its own";
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/memory.events", "oom 1\noom_kill 2\n");
  EXPECT_EQ(kills(), 2);
  write("sys/fs/cgroup/a/b/memory.events", "oom 9\noom_kill 0\noom_group_kill 4\n");
  EXPECT_EQ(kills(), 0);
}

TEST_F(CgroupFiles, KillsOfTheGroupsThatShareALimitAreCounted) {
  write("proc/self/cgroup", "0::/job_7/step_0/task_1\n");
  write("sys/fs/cgroup/job_7/step_0/task_1/memory.max", "max\n");
  write("sys/fs/cgroup/job_7/step_0/task_1/memory.events", "oom 0\noom_kill 0\n");
  write("sys/fs/cgroup/job_7/step_0/memory.events", "oom 1\noom_kill 2\n");
  EXPECT_EQ(kills(), 0);
  write("sys/fs/cgroup/job_7/step_0/memory.max", "1000\n");
  EXPECT_EQ(kills(), 2);
  write("sys/fs/cgroup/job_7/memory.max", "2000\n");
  write("sys/fs/cgroup/job_7/memory.events", "oom 1\noom_kill 9\n");
  EXPECT_EQ(kills(), 2) << "the nearest limit";
}

TEST_F(CgroupFiles, AllMemoryIsTheMachinesOrTheSmallestLimitOfVersionTwo) {
  EXPECT_EQ(total(), std::nullopt);
  write("proc/meminfo", "MemTotal:       90 kB\nMemFree: 1 kB\nMemAvailable:      50 kB\n");
  EXPECT_EQ(total(), 92160);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(total(), 92160);
  write("sys/fs/cgroup/a/memory.max", "40000\n");
  EXPECT_EQ(total(), 40000) << "a limit counts without the bytes in use";
  write("sys/fs/cgroup/a/b/memory.max", "100000\n");
  EXPECT_EQ(total(), 40000);
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  EXPECT_EQ(total(), 92160);
  write("sys/fs/cgroup/a/b/memory.current", "99999\n");
  EXPECT_EQ(memory(), 1);
}

TEST_F(CgroupFiles, AvailableMemoryIsAtMostTheLimit) {
  write("proc/meminfo", "MemTotal: 90 kB\nMemAvailable: 80 kB\n");
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "40000\n");
  write("sys/fs/cgroup/a/memory.current", "1000\n");
  write("sys/fs/cgroup/a/memory.stat", "inactive_file 5000\n");  // read after a large file was
  EXPECT_EQ(memory(), 40000);
  EXPECT_EQ(total(), 40000);
}

TEST_F(CgroupFiles, AllMemoryIsLimitedByVersionOneToo) {
  write("proc/meminfo", "MemTotal: 90 kB\nMemAvailable: 50 kB\n");
  write("proc/self/cgroup", "7:memory:/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(total(), 92160);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n");
  EXPECT_EQ(total(), 9000);
}

}  // namespace
}  // namespace zero
