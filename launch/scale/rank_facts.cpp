// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/rank_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "collectives/backends.h"
#include "collectives/host/process.h"
#include "device/cuda/gpus.h"
#include "launch/memory/machine_memory.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/same_build.h"

namespace zero {
namespace {

/// In the order in which they travel.
template <typename Facts>
auto fields_of(Facts& facts) {
  return std::tie(facts.host, facts.version, facts.build, facts.mpi, facts.driver, facts.runtime,
                  facts.nccl, facts.has_nccl, facts.gpus, facts.gpu, facts.kind, facts.infiniband,
                  facts.locked_memory, facts.shared_memory, facts.addresses);
}

void add_gpu(const Communicator& ranks, RankFacts& facts) {
  facts.driver = cuda::driver_version();
  facts.runtime = cuda::runtime_version();
  facts.nccl = nccl::version();
  facts.has_nccl = nccl::available();
  facts.gpus = cuda::visible_devices();
  try {
    const int index = cuda::index_of_rank(ranks.local_rank());
    facts.gpu = cuda::uuid_of(index);
    for (const GpuMemory& gpu : nvidia_memory().gpus) {
      if (gpu.uuid == facts.gpu) facts.kind = gpu.name;
    }
    if (const auto missing = cuda::missing_code(index)) facts.gpu = missing->why;
  } catch (const Error& error) {
    facts.gpu = error.what();
  }
}

}  // namespace

bool may_lock_any_memory(std::istream& status) {
  constexpr std::uint64_t kIpcLock = 1U << 14;  // CAP_IPC_LOCK
  constexpr std::string_view kField = "CapEff:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kField)) continue;
    return (std::strtoull(line.c_str() + kField.size(), nullptr, 16) & kIpcLock) != 0;
  }
  return false;
}

RankFacts rank_facts(const Communicator& ranks, const PreflightQuestion& question) {
  RankFacts facts{.host = host_name(),
                  .version = version(),
                  .build = build_mark(),
                  .mpi = mpi::version(),
                  .addresses = host_addresses(process_environment())};
  std::error_code ignored;
  facts.infiniband = std::filesystem::exists("/dev/infiniband", ignored);
  rlimit limit{};
  std::ifstream status("/proc/self/status");
  // The kernel asks for the capability of the first user namespace.
  const bool unlimited = host::in_first_user_namespace() && may_lock_any_memory(status);
  if (!unlimited && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.locked_memory = static_cast<std::int64_t>(limit.rlim_cur);
  }
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) == 0) {
    facts.shared_memory = static_cast<std::int64_t>(room.f_blocks * room.f_frsize);
  }
  if (question.device == DeviceKind::cuda) add_gpu(ranks, facts);
  return facts;
}

void to_json(nlohmann::json& json, const HostAddress& address) {
  json = std::tie(address.interface, address.address);
}

void from_json(const nlohmann::json& json, HostAddress& address) {
  std::tie(address.interface, address.address) = json.get<std::pair<std::string, std::string>>();
}

void to_json(nlohmann::json& json, const RankFacts& facts) { json = fields_of(facts); }

void from_json(const nlohmann::json& json, RankFacts& facts) {
  std::size_t at = 0;
  std::apply([&](auto&... field) { (json.at(at++).get_to(field), ...); }, fields_of(facts));
}

}  // namespace zero
