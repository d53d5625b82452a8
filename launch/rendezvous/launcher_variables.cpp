// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/launcher_variables.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/whole_number.h"

namespace zero {
namespace {

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
  if (environment("TORCHELASTIC_RUN_ID") || !environment("RANK")) return;
  const auto world = first_said(environment, {"WORLD_SIZE"});
  const auto tasks = first_said(environment, {"SLURM_NTASKS"});
  if (!world || !tasks || world->value > tasks->value) return;
  check_same(world, tasks, kUnsetVariables);
  check_same(first_said(environment, {"RANK"}), first_said(environment, {"SLURM_PROCID"}),
             kUnsetVariables);
}

/// Whether Open MPI's mpirun started this process from a shell of the step (srun --pty bash). Its
/// ranks inherit the variables of the shell's task, the first one; variables that are left over
/// are those of all tasks.
bool started_from_shell_of_step(const Environment& environment) {
  const auto number = [&](const char* name) { return number_in(environment, name); };
  const auto rank = number("OMPI_COMM_WORLD_RANK");
  const auto world = number("OMPI_COMM_WORLD_SIZE");
  const auto local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
  const auto local_world = number("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!rank || !world || !local_rank || !local_world) return false;
  return number("SLURM_PROCID") == 0 && number("PMIX_RANK").value_or(*rank) == *rank &&
         *rank < *world && *local_rank < *local_world && *local_world <= *world;
}

/// Under Slurm mpirun starts its daemons as tasks of a step, one a host: a step with several tasks
/// on a host is no mpirun's, and its ranks are those of MPI.
void check_mpi_in_step(const Environment& environment) {
  const auto tasks = first_said(environment, {"SLURM_NTASKS"});
  const auto hosts = first_said(environment, {"SLURM_NNODES"});
  if (!tasks || !hosts || tasks->value <= hosts->value) return;
  const auto world = world_of_mpi(environment);
  if (!world || started_from_shell_of_step(environment)) return;
  constexpr std::string_view kUnset = "unset it and its kin (OMPI_*, PMI_*, PMIX_*) before srun";
  check_same(world, tasks, kUnset);
  check_same(rank_of_mpi(environment), first_said(environment, {"SLURM_PROCID"}), kUnset);
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

std::optional<Said> first_said(const Environment& environment,
                               std::initializer_list<std::string_view> names, int least) {
  for (const std::string_view name : names) {
    if (const auto value = number_in(environment, std::string(name), least)) {
      return Said{std::string(name), *value};
    }
  }
  return std::nullopt;
}

std::optional<Said> world_of_mpi(const Environment& environment) {
  if (pmi_is_of_slurm(environment)) {
    return first_said(environment, {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"}, 1);
  }
  return first_said(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}, 1);
}

std::optional<Said> rank_of_mpi(const Environment& environment) {
  for (const std::string_view name : kRankVariables) {
    const bool of_mpi = name != "RANK" && name != "SLURM_PROCID" &&
                        !(name == "PMI_RANK" && pmi_is_of_slurm(environment));
    if (!of_mpi) continue;
    if (const auto rank = first_said(environment, {name})) return rank;
  }
  return std::nullopt;
}

bool pmi_is_of_slurm(const Environment& environment) {
  // MPI_LOCALRANKID is set by MPICH's launcher, PMIX_RANK by srun --mpi=pmix.
  return in_step_of_srun(environment) && !environment("PMIX_RANK") &&
         !environment("MPI_LOCALRANKID");
}

bool is_for_one_start(std::string_view name) {
  constexpr std::string_view kSetting = "OMPI_MCA_";
  if (name.starts_with(kSetting)) {
    // mpirun tells its ranks where they are in variables of the form that settings have.
    constexpr std::array<std::string_view, 14> kTold{"ess",
                                                     "pmix",
                                                     "initial_wdir",
                                                     "orte_app_num",
                                                     "orte_bound_at_launch",
                                                     "orte_cpu_",
                                                     "orte_do_not_barrier",
                                                     "orte_ess_",
                                                     "orte_hnp_uri",
                                                     "orte_jobfam_session_dir",
                                                     "orte_local_daemon_uri",
                                                     "orte_num_",
                                                     "orte_top_session_dir",
                                                     "shmem_RUNTIME_QUERY_hint"};
    const std::string_view key = name.substr(kSetting.size());
    return std::ranges::any_of(kTold, [&](auto told) { return key.starts_with(told); });
  }
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  constexpr std::array<std::string_view, 4> kSettings{"PMIX_MCA_", "PRTE_MCA_", "OMPI_ALLOW",
                                                      "PRTE_ALLOW"};
  if (std::ranges::any_of(kSettings, begins)) return false;
  constexpr std::array<std::string_view, 7> kBegins{"OMPI_", "ORTE_",           "PMIX_",    "PMI_",
                                                    "PRTE_", "MV2_COMM_WORLD_", "MPI_LOCAL"};
  constexpr std::array<std::string_view, 6> kNames{"WORLD_SIZE",       "LOCAL_RANK",
                                                   "LOCAL_WORLD_SIZE", "SLURM_LOCALID",
                                                   "SLURM_STEP_ID",    "SLURM_STEPID"};
  return std::ranges::any_of(kBegins, begins) || std::ranges::count(kNames, name) > 0 ||
         std::ranges::count(kRankVariables, name) > 0;
}

bool in_step_of_srun(const Environment& environment) {
  constexpr std::int64_t kReserved = 0xFFFFFFF0;
  const auto id = environment("SLURM_STEP_ID");
  return id && whole_number(*id, 0, kReserved - 1).has_value();
}

void check_launchers_agree(const Environment& environment) {
  // Clouds preset WORLD_SIZE, to the number of hosts: without a RANK no launcher has set it.
  if (const auto world = world_of_mpi(environment); world && environment("RANK")) {
    check_same(first_said(environment, {"WORLD_SIZE"}), world, kUnsetVariables);
    check_same(first_said(environment, {"RANK"}), rank_of_mpi(environment), kUnsetVariables);
  }
  if (!in_step_of_srun(environment)) return;
  check_same(first_said(environment, {"SLURM_NTASKS"}),
             first_said(environment, {"SLURM_STEP_NUM_TASKS"}),
             "unset SLURM_NTASKS before srun; srun sets it itself");
  check_variables_in_step(environment);
  check_mpi_in_step(environment);
}

}  // namespace zero
