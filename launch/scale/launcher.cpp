// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace zero {
namespace {

constexpr std::array<std::string_view, 4> kLauncherNames{"local", "mpirun", "srun", "torchrun"};
constexpr int kTorchrunPort = 29500;  // its own default

void append(Command& command, const std::vector<std::string>& words) {
  command.insert(command.end(), words.begin(), words.end());
}

Command mpirun_command(const Launcher& launcher, int world, const Command& program) {
  Command command{"mpirun", "-np", std::to_string(world), "--bind-to", "none"};
  if (launcher.as_root) command.emplace_back("--allow-run-as-root");
  if (launcher.hosts.empty()) {
    command.emplace_back("--oversubscribe");
  } else {
    append(command, {"--host", hosts_text(launcher.placement(world))});
  }
  if (!launcher.agent.empty()) append(command, {"--mca", "plm_rsh_agent", launcher.agent});
  for (const std::string& variable : launcher.variables) {
    if (launcher.hosts.size() > 1) append(command, {"-x", variable.substr(0, variable.find('='))});
  }
  append(command, launcher.flags);
  append(command, program);
  return command;
}

/// The ranks of each host, all alike.
int ranks_of_each(const Launcher& launcher, const std::vector<RankHost>& hosts, int world) {
  ZERO_CHECK(std::ranges::all_of(
                 hosts, [&](const RankHost& host) { return host.ranks == hosts.front().ranks; }),
             "--launcher {}: starts as many ranks on every host, found {} for a world of {}; give "
             "other --worlds, or --launcher mpirun",
             name_of(launcher.kind), hosts_text(hosts), world);
  return hosts.front().ranks;
}

Command srun_command(const Launcher& launcher, int world, const Command& program) {
  const std::vector<RankHost> hosts = launcher.placement(world);
  const int each = ranks_of_each(launcher, hosts, world);
  Command command{"srun", fmt::format("--nodes={}", hosts.size()),
                  fmt::format("--ntasks={}", world), fmt::format("--ntasks-per-node={}", each),
                  "--kill-on-bad-exit=1"};
  if (launcher.in_step) command.emplace_back("--overlap");
  if (!launcher.hosts.empty()) {
    std::string names;
    for (const RankHost& host : hosts) names += (names.empty() ? "" : ",") + host.name;
    command.push_back("--nodelist=" + names);
  }
  append(command, launcher.flags);
  append(command, program);
  return command;
}

/// The agent's words, as mpirun too splits them.
Command agent_words(const Launcher& launcher) {
  std::istringstream text(launcher.agent.empty() ? "ssh" : launcher.agent);
  return {std::istream_iterator<std::string>(text), {}};
}

std::vector<Command> torchrun_commands(const Launcher& launcher, int world,
                                       const Command& program) {
  const std::vector<RankHost> hosts = launcher.placement(world);
  const int each = ranks_of_each(launcher, hosts, world);
  const int port = launcher.port == 0 ? kTorchrunPort : launcher.port;
  std::vector<Command> commands;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    // Else --standalone gives the ranks the agent's own port, and the next one may be taken.
    Command environment{"env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"};
    Command command{launcher.torchrun.empty() ? "torchrun" : launcher.torchrun, "--nproc-per-node",
                    std::to_string(each)};
    if (hosts.size() == 1) {
      command.emplace_back("--standalone");
    } else {
      append(command, {"--nnodes", std::to_string(hosts.size()), "--node-rank", std::to_string(i),
                       "--master-addr", hosts.front().name, "--master-port", std::to_string(port)});
    }
    append(command, launcher.flags);
    command.emplace_back("--no-python");
    append(command, program);
    const std::string& name = hosts[i].name;
    if (name.empty() || name == launcher.here || name == "localhost") {
      append(environment, command);
      commands.push_back(environment);
      continue;
    }
    const bool shows_secret = std::ranges::any_of(
        launcher.variables,
        [](const std::string& variable) { return variable.starts_with("ZERO_JOB_SECRET="); });
    ZERO_CHECK(!shows_secret,
               "--launcher torchrun: ZERO_JOB_SECRET would stand in the command for host {}, which "
               "all users of both hosts see; unset it, and give ZERO_JOB_SECRET_FILE, a file of "
               "mode 0600 that both hosts have",
               name);
    append(environment, launcher.variables);
    append(environment, command);
    Command there = agent_words(launcher);
    append(there, {name, shell_text(environment)});
    commands.push_back(there);
  }
  return commands;
}

}  // namespace

std::string_view name_of(Launcher::Kind kind) {
  return kLauncherNames.at(static_cast<std::size_t>(kind));
}

Launcher::Kind launcher_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kLauncherNames, name);
  ZERO_CHECK(found != kLauncherNames.end(), "found no launcher {}", name);
  return static_cast<Launcher::Kind>(found - kLauncherNames.begin());
}

std::vector<RankHost> Launcher::placement(int world) const {
  return hosts.empty() ? std::vector<RankHost>{{.name = "", .ranks = world}}
                       : hosts_of_world(hosts, world);
}

void Launcher::check() const {
  const auto refuse = [&](const char* option, bool given, std::initializer_list<Kind> of) {
    ZERO_CHECK(!given || std::ranges::find(of, kind) != of.end(),
               "{}: --launcher {} has no use for it: {}; leave it out, or give another launcher",
               option, name_of(kind),
               kind == Kind::local  ? "its ranks are threads of one process of this host"
               : kind == Kind::srun ? "Slurm itself starts the ranks on the hosts"
                                    : "its ranks meet through MPI");
  };
  refuse("--agent", !agent.empty(), {Kind::mpirun, Kind::torchrun});
  refuse("--torchrun", !torchrun.empty(), {Kind::torchrun});
  refuse("--port", port != 0, {Kind::torchrun});
  refuse("--launcher-flag", !flags.empty(), {Kind::mpirun, Kind::srun, Kind::torchrun});
}

bool Launcher::needs_secret() const {
  return hosts.size() > 1 && (kind == Kind::srun || kind == Kind::torchrun);
}

std::vector<Command> Launcher::commands(int world, const Command& given) const {
  Command program;
  if (!secret_file.empty() && needs_secret() && placement(world).size() > 1) {
    program = {"env", "ZERO_JOB_SECRET_FILE=" + secret_file};
  }
  append(program, given);
  switch (kind) {
    case Kind::mpirun:
      return {mpirun_command(*this, world, program)};
    case Kind::srun:
      return {srun_command(*this, world, program)};
    case Kind::torchrun:
      return torchrun_commands(*this, world, program);
    case Kind::local:
      break;
  }
  ZERO_CHECK(hosts.size() <= 1 &&
                 (hosts.empty() || hosts.front().name == here || hosts.front().name == "localhost"),
             "--launcher local: ranks are threads of this host, {}, found the hosts {}; give "
             "--launcher mpirun, srun or torchrun",
             here, hosts_text(hosts));
  if (!hosts.empty()) placement(world);  // refuses more ranks than the host takes
  Command command = program;
  append(command, {"--local-ranks", std::to_string(world)});
  return {command};
}

std::vector<std::string> variables_to_forward() {
  constexpr std::array<std::string_view, 6> kBegins{"NCCL_", "UCX_",   "FI_",
                                                    "ZERO_", "RDMAV_", "LD_LIBRARY_PATH="};
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (std::ranges::any_of(kBegins, [&](auto begin) { return text.starts_with(begin); })) {
      found.emplace_back(text);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace zero
