// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/rank_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <array>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "collectives/backends.h"
#include "device/cuda/gpus.h"
#include "launch/memory/machine_memory.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/same_build.h"

namespace zero {
namespace {

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&six)) bytes = &six;
  }
  if (bytes == nullptr) return "";
  const char* const made = ::inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return made == nullptr ? "" : made;
}

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

std::vector<HostAddress> host_addresses() {
  ifaddrs* list = nullptr;
  ZERO_CHECK(::getifaddrs(&list) == 0, "cannot list the network's interfaces: {}",
             std::generic_category().message(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<HostAddress> addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const bool runs = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!runs || each->ifa_addr == nullptr) continue;
    std::string text = address_text(*each->ifa_addr);
    if (!text.empty()) addresses.push_back({each->ifa_name, std::move(text)});
  }
  return addresses;
}

RankFacts rank_facts(const Communicator& ranks, const PreflightQuestion& question) {
  RankFacts facts{.host = host_name(),
                  .version = version(),
                  .build = build_mark(),
                  .mpi = mpi::version(),
                  .addresses = host_addresses()};
  std::error_code ignored;
  facts.infiniband = std::filesystem::exists("/dev/infiniband", ignored);
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
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
