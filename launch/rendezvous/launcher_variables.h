// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "launch/process/environment.h"

namespace zero {

// The numbers that launchers put into variables: ranks, worlds, ports.

/// The largest number of ranks, and above every rank, that a variable may say.
inline constexpr int kAnyRanks = 1 << 20;

/// The whole number in [least, most] that a variable holds; nothing if the variable is not set.
/// Throws zero::Error if it holds anything else.
std::optional<int> number_in(const Environment& environment, const std::string& name, int least = 0,
                             int most = kAnyRanks);

/// The variables that say a process's rank. Where launchers have started each other several are
/// set, and the first of them is right.
inline constexpr std::array<std::string_view, 6> kRankVariables{
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

/// A variable that is set to a number of ranks or a rank.
struct Said {
  std::string name;
  int value = 0;
};
/// The first of the variables that is set, as number_in() reads it.
std::optional<Said> first_said(const Environment& environment,
                               std::initializer_list<std::string_view> names, int least = 0);

/// The number of ranks, and this one's, that a launcher of MPI has set.
std::optional<Said> world_of_mpi(const Environment& environment);
std::optional<Said> rank_of_mpi(const Environment& environment);

/// Whether PMI_RANK and PMI_SIZE are Slurm's own. If pmi2 is its default, srun sets them for every
/// program, and an MPI that was not built for pmi2 aborts if it is called.
bool pmi_is_of_slurm(const Environment& environment);

/// Whether the variable is a launcher's word to the processes that it started, which means nothing
/// to a job that one of them starts. What users set for MPI and Slurm is none.
bool is_for_one_start(std::string_view name);

/// Whether srun started this process. Batch scripts and salloc's shells have a task's variables
/// too, but no step id, or one of the reserved largest ones.
bool in_step_of_srun(const Environment& environment);

/// Throws zero::Error, naming the variables, if those of mpirun, torchrun and srun cannot all come
/// from launchers that started each other: one of them is a left-over of an earlier launcher, and
/// obeying it makes ranks train alone. A torchrun that srun started once a host, and an mpirun
/// inside a job of Slurm, are no contradictions.
void check_launchers_agree(const Environment& environment);

}  // namespace zero
