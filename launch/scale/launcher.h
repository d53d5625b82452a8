// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/subprocess.h"
#include "launch/scale/hosts.h"

namespace zero {

/// What starts the ranks of a run.
struct Launcher {
  enum class Kind : std::uint8_t {
    local,  ///< threads of one process of this host
    mpirun,
    srun,
    torchrun,  ///< one on every host, by `agent`
  };
  Kind kind = Kind::local;
  std::vector<RankHost> hosts{};         ///< empty: this host, with as many ranks as are asked for
  std::string agent{};                   ///< that runs a command on another host; empty: ssh
  std::string torchrun{};                ///< the program, the same on all hosts; empty: in PATH
  int port = 0;                          ///< of torchrun on several hosts; 0: 29500
  std::vector<std::string> flags{};      ///< of the launcher, behind its own
  std::vector<std::string> variables{};  ///< NAME=VALUE for the other hosts
  std::string secret_file{};             ///< of ranks that no MPI joins, on several hosts
  bool as_root = false;
  bool in_step = false;  ///< this process is in a step of srun, whose resources srun must share
  std::string here{};    ///< this host's name

  /// Throws zero::Error if a field is set that this kind has no use for.
  void check() const;
  /// The commands, one for each host that has a launcher of its own, that run `program` on `world`
  /// ranks: what a user would type. Throws zero::Error if they cannot be started so.
  std::vector<Command> commands(int world, const Command& program) const;
  /// Whether ranks on its hosts need a secret to meet.
  bool needs_secret() const;
  /// The hosts of a world of that size; one without a name if none are given.
  std::vector<RankHost> placement(int world) const;
};

std::string_view name_of(Launcher::Kind kind);
/// The kind of that name, which must be one.
Launcher::Kind launcher_kind(std::string_view name);

/// The variables of this process that ranks on other hosts need as well: those of NCCL, UCX,
/// libfabric, the engine, and the path of libraries. As NAME=VALUE.
std::vector<std::string> variables_to_forward();

}  // namespace zero
