// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/preflight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file_text.h"
#include "base/random_hex.h"
#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "device/cuda/gpus.h"
#include "launch/process/process.h"
#include "launch/scale/host_links.h"
#include "launch/scale/open_ports.h"
#include "launch/scale/rank_facts.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// Gathers small values of all ranks.
class Gather {
 public:
  Gather(Communicator& ranks, Device& device) : ranks_(ranks), device_(device) {}

  std::vector<nlohmann::json> operator()(const nlohmann::json& mine, std::string_view purpose) {
    std::vector<nlohmann::json> all;
    // Names of hosts and paths may be no UTF-8.
    const std::string text = mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (const std::string& each : all_gather_texts(ranks_, device_, text, purpose)) {
      all.push_back(nlohmann::json::parse(each));
    }
    return all;
  }

 private:
  Communicator& ranks_;
  Device& device_;
};

/// A text that no other job has.
std::string token() { return "zero_preflight_" + random_hex(16); }

/// Why the first rank of a host, `there`, does not answer that of host `here`: none of its
/// addresses does. Empty if it answers.
std::string silence_of(const RankFacts& here, const RankFacts& there,
                       const nlohmann::json& answer) {
  constexpr std::chrono::seconds kPatience{3};
  std::vector<std::string> reasons;
  for (const HostAddress& address : there.addresses) {
    const std::string why =
        why_no_answer(address, answer.at(0).get<int>(), answer.at(1).get<std::string>(), kPatience);
    if (why.empty()) return "";
    reasons.push_back(fmt::format("{} ({}): {}", address.address, address.interface, why));
  }
  return fmt::format("{} does not reach {} at {}", here.host, there.host,
                     reasons.empty()
                         ? "any address: it has none by which ranks talk (NCCL_SOCKET_IFNAME, "
                           "OMPI_MCA_btl_tcp_if_include and _exclude choose them)"
                         : fmt::format("{}", fmt::join(reasons, ", ")));
}

/// The hosts that do not answer this one. All are asked at once: the ranks that wait for this one
/// have no patience for one after another.
std::vector<std::string> silent_hosts(const RanksOfHosts& hosts, int mine,
                                      const std::vector<RankFacts>& facts,
                                      const std::vector<nlohmann::json>& answers) {
  const auto first_of = [&](int host) { return static_cast<std::size_t>(hosts.first_rank(host)); };
  std::vector<std::future<std::string>> asked;
  for (int host = 0; host < hosts.hosts(); ++host) {
    if (host == mine) continue;
    asked.push_back(std::async(std::launch::async, silence_of, std::cref(facts[first_of(mine)]),
                               std::cref(facts[first_of(host)]),
                               std::cref(answers[first_of(host)])));
  }
  std::vector<std::string> silent;
  for (std::future<std::string>& each : asked) {
    std::string text = each.get();
    if (!text.empty()) silent.push_back(std::move(text));
  }
  return silent;
}

/// The first text of any rank; empty if there is none.
std::string first_text(const std::vector<nlohmann::json>& all) {
  for (const nlohmann::json& of_rank : all) {
    for (const nlohmann::json& text : of_rank) return text.get<std::string>();
  }
  return "";
}

PreflightLine ports_line(Gather& gather, const RanksOfHosts& hosts, int mine,
                         const std::vector<RankFacts>& facts) {
  std::unique_ptr<PortAnswer> answer;
  const std::string text = token();
  if (mine >= 0) answer = std::make_unique<PortAnswer>(text);
  const auto answers = gather({answer ? answer->port() : 0, text}, "preflight ports");
  std::vector<std::string> silent;
  if (answer) silent = silent_hosts(hosts, mine, facts, answers);
  const std::string wrong = first_text(gather(silent, "preflight answers"));
  if (wrong.empty()) {
    return {.name = "ports",
            .text = hosts.hosts() == 1 ? "one host: none between hosts"
                                       : "each host answers each other one"};
  }
  return {false, "ports",
          wrong +
              "; expected an answer: let the hosts of the job talk TCP at all ports (a security "
              "group that has itself as source, the hosts' firewalls)"};
}

PreflightLine folder_line(Gather& gather, const RanksOfHosts& hosts, int mine,
                          const std::string& folder) {
  const auto path_of = [&](const std::string& name) {
    return std::filesystem::path(folder) / ("." + name);
  };
  const std::string text = token();
  std::vector<std::string> wrong;
  std::error_code failed;
  if (mine >= 0) {
    std::filesystem::create_directories(folder, failed);
    // A file of its own, through no link: others may write into the folder too.
    const Descriptor file(
        ::open(path_of(text).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file.get() < 0 || ::write(file.get(), text.data(), text.size()) != std::ssize(text)) {
      wrong.push_back(fmt::format("{} cannot write {}: {}", hosts.name(mine),
                                  path_of(text).string(), std::generic_category().message(errno)));
    }
  }
  const auto written = gather({text, wrong}, "preflight folder");
  // A file system between hosts may keep names for seconds.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int host = 0; mine >= 0 && wrong.empty() && host < hosts.hosts(); ++host) {
    const nlohmann::json& other = written[static_cast<std::size_t>(hosts.first_rank(host))];
    if (!other.at(1).empty()) continue;  // it says so itself
    const auto expected = other.at(0).get<std::string>();
    while (file_text(path_of(expected)) != expected && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (file_text(path_of(expected)) == expected) continue;
    wrong.push_back(fmt::format("{} does not see what {} wrote into {}", hosts.name(mine),
                                hosts.name(host), path_of(expected).string()));
  }
  const std::string first = first_text(gather(wrong, "preflight files"));
  if (mine >= 0) std::filesystem::remove(path_of(text), failed);
  if (first.empty()) {
    return {.name = "folder", .text = fmt::format("{}: each host sees the others' files", folder)};
  }
  return {false, "folder",
          first +
              "; expected a folder that all hosts share (NFS, Lustre, FSx, Filestore), under "
              "one path"};
}

void add_links(Communicator& ranks, Device& device, const RanksOfHosts& hosts,
               const PreflightQuestion& question, std::vector<PreflightLine>& lines) {
  const std::vector<HostLink> links = measure_links(ranks, device, hosts, question);
  lines.push_back(clocks_line(hosts, links));
  lines.push_back(links_line(hosts, links, question.device));
}

/// NCCL needs what was checked before: where that is wrong it would only fail in words of its own.
void add_links_of_gpus(Communicator& ranks, const RanksOfHosts& hosts,
                       const PreflightQuestion& question, std::vector<PreflightLine>& lines) {
  if (!nccl_may_start(lines)) {
    lines.push_back({false, "links", "not measured: first mend what is wrong above"});
    return;
  }
  try {
    const auto device = cuda::open({.index = cuda::index_of_rank(ranks.local_rank())});
    if (ranks.size() == 1) return add_links(ranks, *device, hosts, question, lines);
    const auto gpus = nccl::world({ranks.store(), ranks.rank(), ranks.size()}, *device, {});
    add_links(*gpus, *device, hosts, question, lines);
  } catch (const Error& error) {
    lines.push_back({false, "links",
                     fmt::format("{}; expected NCCL to connect all GPUs: NCCL_DEBUG=INFO says more",
                                 error.what())});
  }
}

}  // namespace

std::vector<PreflightLine> preflight(Communicator& ranks, const PreflightQuestion& question) {
  const auto device = cpu::open();
  ranks.set_wait_limits({.timeout = question.patience});
  Gather gather(ranks, *device);
  std::vector<RankFacts> facts;
  for (const nlohmann::json& each : gather(rank_facts(ranks, question), "preflight")) {
    facts.push_back(each.get<RankFacts>());
  }
  std::vector<PreflightLine> lines = judge(facts, question);
  const RanksOfHosts hosts = hosts_of(facts);
  const int mine = hosts.led_by(ranks.rank());
  lines.push_back(ports_line(gather, hosts, mine, facts));
  if (!question.folder.empty()) lines.push_back(folder_line(gather, hosts, mine, question.folder));
  if (question.device == DeviceKind::cuda) {
    add_links_of_gpus(ranks, hosts, question, lines);
  } else {
    add_links(ranks, *device, hosts, question, lines);
  }
  return lines;
}

int run_preflight(const Start& start, const PreflightQuestion& question, int* argc, char*** argv) {
  const auto body = [&](Communicator& ranks) {
    try {
      const std::vector<PreflightLine> lines = preflight(ranks, question);
      for (const PreflightLine& line : lines) {
        if (ranks.rank() == 0) print(line.shown() + "\n");
      }
      return std::ranges::all_of(lines, &PreflightLine::ok) ? 0 : 1;
    } catch (const std::exception& error) {
      end_job("zero_scale --check", error.what(), ranks.rank(), ranks.size());
    }
  };
  const bool of_gpus = question.device == DeviceKind::cuda;
  return run_ranks(start, of_gpus ? BetweenHosts::nccl : BetweenHosts::mpi, argc, argv, body,
                   [](const std::string& line) { print_to_stderr(line + "\n"); });
}

}  // namespace zero
