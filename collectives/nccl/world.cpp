// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "base/host_name.h"
#include "collectives/backends.h"
#include "collectives/nccl/backend.h"
#include "collectives/nccl/check.h"
#include "collectives/nccl/gpu.h"

namespace zero::nccl {
namespace {

// Rank 0's NCCL id, through the store.
ncclUniqueId shared_id(const StoreRank& self) {
  constexpr std::string_view kKey = "nccl/id";
  ncclUniqueId id{};
  if (self.rank == 0) {
    check(ncclGetUniqueId(&id), "[rank 0] start of NCCL");
    self.store.set(kKey, {id.internal, sizeof id.internal});
  }
  const std::string text = self.store.get(kKey, self.timeout);
  ZERO_CHECK(text.size() == sizeof id.internal,
             "[rank {}] NCCL: rank 0 gave {} bytes to meet by, expected {}; all ranks need one "
             "build",
             self.rank, text.size(), sizeof id.internal);
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  return id;
}

// NCCL refuses two ranks of one host on one GPU, and takes the host's name from here.
void imitate_a_host_of_its_own(int rank) {
  ::setenv("NCCL_HOSTID", fmt::format("zero-rank-{}", rank).c_str(), 1);
}

}  // namespace

std::unique_ptr<Communicator> world(const StoreRank& self, Device& device, const Options& options) {
  const Gpu gpu = use_gpu_of(device);
  const Identity mine{.version = version(),
                      .gpu = gpu.name,
                      .gpu_id = gpu.id,
                      .host = host_name(),
                      .settings = options.sums == Sums::exact ? "exact sums" : "fast sums"};
  std::vector<Identity> ranks;
  for (const std::string& text : all_gather_texts(self, "nccl/identity", mine.text())) {
    ranks.push_back(Identity::from(text));
  }
  check_identities(self.rank, ranks, options.gpus);
  std::string description = fmt::format("NCCL {}, {}", mine.version, mine.settings);
  if (share_gpus(ranks)) {
    imitate_a_host_of_its_own(self.rank);
    description += "; ranks share GPUs";
  }
  std::vector<std::string> hosts;
  for (const Identity& rank : ranks) hosts.push_back(rank.host);
  const ncclUniqueId id = shared_id(self);
  auto context = std::make_shared<CallContext>();
  auto session = std::make_shared<Session>(self.store, self.rank, context);
  auto comm = Comm::join(session, {.id = id,
                                   .rank = self.rank,
                                   .size = self.size,
                                   .deadline = Session::Clock::now() + options.timeout});
  return std::make_unique<Communicator>(
      std::make_shared<NcclBackend>(NcclBackend::Parts{.comm = std::move(comm),
                                                       .device = device,
                                                       .self = self,
                                                       .name = "nccl",
                                                       .options = options,
                                                       .hosts = std::move(hosts),
                                                       .description = description,
                                                       .context = std::move(context)}));
}

bool available() { return true; }

std::string version() {
  int number = 0;
  check(ncclGetVersion(&number), "NCCL's version");
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace zero::nccl
