// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/runtime.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include "base/error.h"
#include "collectives/host/process.h"
#include "collectives/mpi/backoff.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/mailbox.h"

namespace zero::mpi {
namespace {

// If each rank has a container of its own, Open MPI 4 finds at its start that ranks cannot read
// each other's memory (CMA), and falls back; after that, messages hang for good once many below the
// eager limit go both ways. With single copy disabled beforehand, Open MPI copies through shared
// memory and does not hang. Which ranks share a container is not known at this point, so the
// setting holds for all of them. Open MPI 5 has no such setting and needs none: it compares the
// namespaces and does without. The user's own value, by the variable or by mpirun --mca, stays.
void do_without_single_copy() {
  if (host::in_first_user_namespace()) return;
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

}  // namespace

bool Runtime::initialised() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

bool Runtime::launched() {
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                  "MV2_COMM_WORLD_SIZE"};
  return std::ranges::any_of(kVariables, [](const char* v) { return std::getenv(v) != nullptr; });
}

std::shared_ptr<Runtime> Runtime::start(int* argc, char*** argv) {
  // One runtime per process, like MPI; this pointer does not keep it alive.
  static std::mutex mutex;
  static std::weak_ptr<Runtime> current;
  const std::scoped_lock lock(mutex);
  auto runtime = current.lock();
  if (!runtime) {
    runtime = std::shared_ptr<Runtime>(new Runtime(argc, argv));
    current = runtime;
  }
  return runtime;
}

Runtime::Runtime(int* argc, char*** argv) : exceptions_(std::uncaught_exceptions()) {
  ZERO_CHECK(!finalised(),
             "MPI has been finalised and cannot start again; keep one communicator of "
             "mpi::world() until the end");
  int provided = MPI_THREAD_SINGLE;
  if (initialised()) {
    check_mpi(MPI_Query_thread(&provided));
  } else {
    do_without_single_copy();
    check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
    owns_mpi_ = true;
  }
  check_thread_level(provided);
}

// A rank that unwinds leaves MPI open: its peers may be in a collective that never ends, and
// finalisation would wait for them forever. The rank's main() reports the error and calls
// mpi::abort.
Runtime::~Runtime() {
  if (finalised() || std::uncaught_exceptions() > exceptions_) {
    for (auto& mailbox : retired_) mailbox->abandon();
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  Backoff backoff;
  const auto done = [](const auto& mailbox) { return mailbox->closed(); };
  while (!std::ranges::all_of(retired_, done) && std::chrono::steady_clock::now() < deadline) {
    backoff.pause();
  }
  retired_.clear();
  if (owns_mpi_) MPI_Finalize();
}

std::shared_ptr<host::Memory> Runtime::memory(int ranks, std::string& reason) {
  const std::scoped_lock lock(mutex_);
  try {
    if (!memory_) memory_ = std::make_shared<host::Memory>(ranks);
  } catch (const std::exception& error) {  // any error: the peers wait for it
    reason = error.what();
  }
  return memory_;
}

void Runtime::retire(std::unique_ptr<Mailbox> mailbox) {
  const std::scoped_lock lock(mutex_);
  retired_.push_back(std::move(mailbox));
}

}  // namespace zero::mpi
