// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <sstream>

#include "collectives/backends.h"
#include "launch/scale/host_links.h"
#include "launch/scale/open_ports.h"
#include "launch/scale/rank_facts.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two hosts of two GPUs, without fault.
std::vector<RankFacts> facts() {
  std::vector<RankFacts> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string host = rank < 2 ? "a" : "b";
    ranks.push_back({.host = host,
                     .version = "1.2",
                     .build = "5f",
                     .mpi = "Open MPI v4.1.4",
                     .driver = "13.0",
                     .runtime = "12.8",
                     .nccl = "2.28.3",
                     .has_nccl = true,
                     .gpus = 2,
                     .gpu = "GPU-" + std::to_string(rank),
                     .kind = "H100",
                     .infiniband = true,
                     .shared_memory = std::int64_t{1} << 30,
                     .addresses = {{"eth0", "10.0.0." + host}}});
  }
  return ranks;
}

PreflightLine line_of(const std::vector<PreflightLine>& lines, const std::string& name) {
  const auto at = std::ranges::find(lines, name, &PreflightLine::name);
  EXPECT_NE(at, lines.end()) << name;
  return at == lines.end() ? PreflightLine{} : *at;
}

const PreflightQuestion kGpus{.device = DeviceKind::cuda, .hosts = 2};

TEST(Preflight, AllIsWell) {
  for (const PreflightLine& line : judge(facts(), kGpus)) EXPECT_TRUE(line.ok) << line.shown();
  EXPECT_EQ(line_of(judge(facts(), kGpus), "hosts").shown(),
            "ok    hosts: a (2 ranks), b (2 ranks)");
  EXPECT_EQ(line_of(judge(facts(), kGpus), "GPUs").text, "4 x H100");
}

struct NamedFault {
  const char* name;
  std::function<void(RankFacts& last)> make;
  const char* text;
};

TEST(Preflight, EachFaultIsNamedByItsLineAlone) {
  const std::vector<NamedFault> faults{
      {"hosts", [](RankFacts& last) { last.host = "a"; }, "expected as many ranks on each host"},
      {"program", [](RankFacts& last) { last.build = "60"; }, "rank 3 on host b runs zero 1.2"},
      {"MPI", [](RankFacts& last) { last.mpi = "Open MPI v5"; },
       "Open MPI v5 on host b (rank 3), expected Open MPI v4.1.4 as on host a"},
      {"CUDA", [](RankFacts& last) { last.driver = "11.8"; },
       "the driver on host b (rank 3) supports 11.8, expected CUDA 12.8"},
      {"CUDA", [](RankFacts& last) { last.driver = "none"; }, "supports none"},
      {"NCCL", [](RankFacts& last) { last.nccl = "2.19"; },
       "2.19 on host b (rank 3), expected 2.28"},
      {"GPUs", [](RankFacts& last) { last.gpu = "no GPU is visible"; },
       "rank 3 on host b: sees 2 GPUs: no GPU is visible; expected one for each rank"},
      {"GPUs", [](RankFacts& last) { last.gpu = "GPU-2"; }, "has GPU-2, which rank 2 has too"},
      {"GPUs", [](RankFacts& last) { last.kind = "A100"; }, "has a A100, expected H100"},
  };
  for (const NamedFault& fault : faults) {
    auto ranks = facts();
    fault.make(ranks.back());
    for (const PreflightLine& line : judge(ranks, kGpus)) {
      EXPECT_EQ(line.ok, line.name != fault.name) << line.shown();
    }
    EXPECT_THAT(line_of(judge(ranks, kGpus), fault.name).shown(),
                AllOf(HasSubstr("WRONG "), HasSubstr(fault.text)));
  }
}

TEST(Preflight, FaultsOfAHostAreNamed) {
  auto ranks = facts();
  ranks[2].shared_memory = ranks[3].shared_memory = std::int64_t{32} << 20;
  EXPECT_EQ(line_of(judge(ranks, kGpus), "limits").text.substr(0, 59),
            "/dev/shm on host b has 32 MiB, expected 64 for 2 ranks: sta");
  EXPECT_TRUE(line_of(judge(ranks, {}), "limits").ok) << "CPUs do without";
  ranks = facts();
  ranks[2].locked_memory = 8192 << 10;
  EXPECT_THAT(line_of(judge(ranks, kGpus), "limits").text, HasSubstr("ranks on host b may lock 8"));
  ranks = facts();
  for (RankFacts& rank : ranks) rank.addresses.push_back({"eth1", "192.168.1.1"});
  EXPECT_THAT(line_of(judge(ranks, kGpus), "addresses").text,
              AllOf(HasSubstr("192.168.1.1 of interface eth1 is an address of a and of b: exclude "
                              "the interface"),
                    HasSubstr("NCCL_SOCKET_IFNAME=^docker,lo,virbr,eth1")));
  EXPECT_THAT(line_of(judge(facts(), {.hosts = 3}), "hosts").text, HasSubstr("expected 3 hosts"));
}

TEST(Preflight, OnlyWhatNcclNeedsKeepsLinksFromBeingMeasured) {
  for (const char* const name : {"addresses", "folder"}) {
    EXPECT_TRUE(nccl_may_start({{.name = "GPUs", .text = ""}, {false, name, ""}})) << name;
  }
  for (const char* const name : {"NCCL", "GPUs", "limits", "ports"}) {
    EXPECT_FALSE(nccl_may_start({{.name = "hosts", .text = ""}, {false, name, ""}})) << name;
  }
}

TEST(Preflight, MemoryIsLockedByLimitOrByCapability) {
  const auto may_lock = [](const char* bits) {
    std::istringstream status(std::string("Name:\tzero\nCapPrm:\tffff\nCapEff:\t") + bits + "\n");
    return may_lock_any_memory(status);
  };
  EXPECT_TRUE(may_lock("0000000000004000"));
  EXPECT_TRUE(may_lock("000001ffffffffff"));
  EXPECT_FALSE(may_lock("0000000000000000"));
  EXPECT_FALSE(may_lock("00000000a80425fb")) << "a container of Docker by default";
}

TEST(Preflight, FactsTravel) {
  const RankFacts one = facts().back();
  const auto copy = nlohmann::json(one).get<RankFacts>();
  EXPECT_EQ(nlohmann::json(copy), nlohmann::json(one));
  EXPECT_EQ(copy.addresses, one.addresses);
  EXPECT_EQ(copy.has_nccl, one.has_nccl);
}

TEST(Preflight, ASlowLinkAndAFalseClockAreNamed) {
  const RanksOfHosts hosts({"a", "b", "c"});
  std::vector<HostLink> links{{0, 1, 20e-6, 10e9, 0.0, 1e-5},
                              {0, 2, 21e-6, 9e9, 0.001, 1e-5},
                              {1, 2, 19e-6, 11e9, 0.0, 1e-5}};
  const std::string figures =
      "a - b: 10.00 GB/s, 20 us; a - c: 9.00 GB/s, 21 us; b - c: 11.00 GB/s, 19 us";
  EXPECT_EQ(links_line(hosts, links, DeviceKind::cuda).text, figures);
  EXPECT_TRUE(clocks_line(hosts, links).ok);
  links[1].bytes_per_second = 1e9;
  links[1].offset = -7.5;
  EXPECT_THAT(links_line(hosts, links, DeviceKind::cpu).shown(),
              HasSubstr("WRONG links: a - c: 1.00 GB/s, 21 us; expected at least 5.00 GB/s"));
  EXPECT_THAT(
      clocks_line(hosts, links).shown(),
      HasSubstr("WRONG clocks: the clock of c is 7.500 s behind that of a, expected at most"));
}

TEST(Preflight, GpusThatTalkThroughTcpAreSuspected) {
  const RanksOfHosts hosts({"a", "b"});
  const std::vector<HostLink> links{{0, 1, 40e-6, 1.2e9, 0.0, 1e-5}};
  EXPECT_THAT(links_line(hosts, links, DeviceKind::cuda).shown(),
              AllOf(HasSubstr("ok    links: a - b: 1.20 GB/s, 40 us; less than 5 GB/s"),
                    HasSubstr("NCCL takes TCP")));
  EXPECT_EQ(links_line(hosts, links, DeviceKind::cpu).text, "a - b: 1.20 GB/s, 40 us");
}

TEST(Preflight, APortAnswersOrSaysWhyNot) {
  const HostAddress here{"lo", "127.0.0.1"};
  const std::chrono::seconds patience{10};
  int port = 0;
  {
    const PortAnswer answer("mine");
    port = answer.port();
    EXPECT_EQ(why_no_answer(here, port, "mine", patience), "");
    EXPECT_EQ(why_no_answer(here, port, "another's", patience), "another host answers there");
  }
  EXPECT_EQ(why_no_answer(here, port, "mine", patience), "Connection refused");
}

TEST(Preflight, AnotherServiceThatSendsWithoutEndIsLeft) {
  const PortAnswer other(std::string(std::size_t{1} << 20, 'x'));
  EXPECT_EQ(why_no_answer({"lo", "127.0.0.1"}, other.port(), "mine", std::chrono::seconds(10)),
            "another host answers there");
}

/// The lines of ranks that are threads.
std::vector<PreflightLine> of_threads(const PreflightQuestion& question) {
  std::mutex mutex;
  std::vector<PreflightLine> lines;
  local::run(3, [&](Communicator& ranks) {
    auto mine = preflight(ranks, question);
    const std::scoped_lock lock(mutex);
    if (ranks.rank() == 2) lines = std::move(mine);
  });
  return lines;
}

TEST(Preflight, RunsOnRanksOfOneHost) {
  const testing::Scratch scratch;
  const auto lines = of_threads({.hosts = 1, .folder = scratch.path("shared")});
  for (const PreflightLine& line : lines) EXPECT_TRUE(line.ok) << line.shown();
  EXPECT_EQ(lines.size(), 9U);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("shared"))) << "its files are gone";
  EXPECT_THAT(line_of(of_threads({.hosts = 2}), "hosts").text, HasSubstr("expected 2 hosts"));
}

/// Others may write into a folder that hosts share.
TEST(Preflight, LeavesFilesBehindLinksOfTheFolderAlone) {
  const testing::Scratch scratch;
  const std::string victim = scratch.write("victim", "mine");
  std::filesystem::create_directories(scratch.path("shared"));
  std::filesystem::create_symlink(victim, scratch.path("shared/.zero_preflight_0"));
  EXPECT_TRUE(line_of(of_threads({.folder = scratch.path("shared")}), "folder").ok);
  EXPECT_EQ(scratch.read("victim"), "mine");
}

TEST(Preflight, AFolderThatCannotBeWrittenIsNamed) {
  const testing::Scratch scratch;
  scratch.write("file", "");
  EXPECT_THAT(line_of(of_threads({.folder = scratch.path("file")}), "folder").shown(),
              AllOf(HasSubstr("WRONG folder: "), HasSubstr("cannot write"),
                    HasSubstr("expected a folder that all hosts share")));
}

TEST(Preflight, ALinkBetweenTwoRanksIsMeasured) {
  std::mutex mutex;
  std::vector<HostLink> links;
  local::run(2, [&](Communicator& ranks) {
    const auto device = cpu::open();
    // The second host's clock goes wrong by an hour.
    const PreflightQuestion question{.clock = [&, late = ranks.rank() == 1] {
      return std::chrono::system_clock::now() - std::chrono::hours(late ? 1 : 0);
    }};
    auto mine = measure_links(ranks, *device, RanksOfHosts({"a", "b"}), question);
    const std::scoped_lock lock(mutex);
    links = std::move(mine);
  });
  ASSERT_EQ(links.size(), 1U);
  EXPECT_GT(links[0].bytes_per_second, 0);
  EXPECT_GT(links[0].latency, 0);
  EXPECT_NEAR(links[0].offset, -3600, 60);
  EXPECT_THAT(clocks_line(RanksOfHosts({"a", "b"}), links).text, HasSubstr("s behind that of a"));
}

}  // namespace
}  // namespace zero
