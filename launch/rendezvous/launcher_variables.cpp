// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/launcher_variables.h"

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "base/whole_number.h"

namespace zero {
namespace {

/// A variable that is set to a number of ranks or a rank.
struct Said {
  const char* name;
  int value;
};

/// The first of the variables that is set.
std::optional<Said> said(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = number_in(environment, name, 0, kAnyRanks)) return Said{name, *value};
  }
  return std::nullopt;
}

std::optional<Said> world_of_mpi(const Environment& environment) {
  return said(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"});
}
std::optional<Said> rank_of_mpi(const Environment& environment) {
  return said(environment, {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"});
}

/// Throws unless `found`, if both are set, is `expected`.
void check_same(const std::optional<Said>& found, const std::optional<Said>& expected,
                std::string_view remedy) {
  ZERO_CHECK(!found || !expected || found->value == expected->value,
             "the variable {} is {}, expected {} as {} says: one of the two is left over from "
             "another launcher; {}",
             found->name, found->value, expected->value, expected->name, remedy);
}

constexpr std::string_view kUnsetVariables =
    "unset RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, or give them these values";

/// Torchrun and its kin may be tasks of srun themselves, one a host, whose ranks are more than the
/// step's tasks. Without torchrun's own mark fewer ranks than tasks are a left-over.
void check_variables_in_step(const Environment& environment) {
  if (environment("TORCHELASTIC_RUN_ID")) return;
  const auto world = said(environment, {"WORLD_SIZE"});
  const auto tasks = said(environment, {"SLURM_NTASKS"});
  if (!world || !tasks || world->value > tasks->value) return;
  check_same(world, tasks, kUnsetVariables);
  check_same(said(environment, {"RANK"}), said(environment, {"SLURM_PROCID"}), kUnsetVariables);
}

/// Under Slurm mpirun starts its daemons as tasks of a step, one a host: a step with several tasks
/// on a host is no mpirun's, and its ranks are those of MPI.
void check_mpi_in_step(const Environment& environment) {
  const auto tasks = said(environment, {"SLURM_NTASKS"});
  const auto hosts = said(environment, {"SLURM_NNODES"});
  if (!tasks || !hosts || tasks->value <= hosts->value) return;
  constexpr std::string_view kUnset = "unset it and its kin (OMPI_*, PMI_*, PMIX_*) before srun";
  check_same(world_of_mpi(environment), tasks, kUnset);
  check_same(rank_of_mpi(environment), said(environment, {"SLURM_PROCID"}), kUnset);
}

}  // namespace

std::optional<int> number_in(const Environment& environment, const std::string& name, int least,
                             int most) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  const auto value = whole_number(*text, least, most);
  ZERO_CHECK(value.has_value(), "the variable {} is \"{}\"; expected a whole number from {} to {}",
             name, *text, least, most);
  return value;
}

bool in_step_of_srun(const Environment& environment) {
  constexpr std::int64_t kReserved = 0xFFFFFFF0;
  const auto id = environment("SLURM_STEP_ID");
  return id && whole_number(*id, 0, kReserved - 1).has_value();
}

void check_launchers_agree(const Environment& environment) {
  if (const auto world = world_of_mpi(environment)) {
    check_same(said(environment, {"WORLD_SIZE"}), world, kUnsetVariables);
    check_same(said(environment, {"RANK"}), rank_of_mpi(environment), kUnsetVariables);
  }
  if (!in_step_of_srun(environment)) return;
  check_same(said(environment, {"SLURM_NTASKS"}), said(environment, {"SLURM_STEP_NUM_TASKS"}),
             "unset SLURM_NTASKS before srun; srun sets it itself");
  check_variables_in_step(environment);
  check_mpi_in_step(environment);
}

}  // namespace zero
