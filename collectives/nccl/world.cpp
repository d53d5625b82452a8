// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "base/host.h"
#include "collectives/backends.h"
#include "collectives/nccl/backend.h"
#include "collectives/nccl/check.h"
#include "collectives/nccl/gpu.h"

namespace zero::nccl {
namespace {

/// A rank's description of itself to the others before NCCL starts.
struct Identity {
  std::string version;   ///< of NCCL
  std::string gpu;       ///< its name
  std::string gpu_id;    ///< unique in the world
  std::string host;      ///< its name
  std::string settings;  ///< settings that must be equal on all ranks: "exact sums"

  /// One line a field, in this order.
  std::string text() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n", version, gpu, gpu_id, host, settings);
  }
  static Identity from(const std::string& text) {
    Identity one;
    std::istringstream lines(text);
    for (std::string* field : {&one.version, &one.gpu, &one.gpu_id, &one.host, &one.settings}) {
      ZERO_CHECK(static_cast<bool>(std::getline(lines, *field)),
                 "\"{}\" does not say what a rank of NCCL is; all ranks need one build", text);
    }
    return one;
  }
};

// The first two ranks that have one GPU.
std::optional<std::pair<std::size_t, std::size_t>> pair_on_one_gpu(
    const std::vector<Identity>& ranks) {
  for (std::size_t one = 0; one < ranks.size(); ++one) {
    for (std::size_t other = 0; other < one; ++other) {
      if (ranks[one].gpu_id == ranks[other].gpu_id) return std::pair(other, one);
    }
  }
  return std::nullopt;
}

/// Throws zero::Error, the same on every rank, if versions, GPUs or settings differ, or if two
/// ranks have one GPU and `gpus` is not Gpus::shared.
void check_identities(int rank, const std::vector<Identity>& ranks, Gpus gpus) {
  const Identity& first = ranks.front();
  for (std::size_t other = 1; other < ranks.size(); ++other) {
    const Identity& theirs = ranks[other];
    ZERO_CHECK(theirs.version == first.version,
               "[rank {}] rank {} has NCCL {}, rank 0 has {}; give all ranks one version", rank,
               other, theirs.version, first.version);
    ZERO_CHECK(theirs.gpu == first.gpu,
               "[rank {}] rank {} computes on {}, rank 0 on {}; results would differ: give all "
               "ranks one type of GPU",
               rank, other, theirs.gpu, first.gpu);
    ZERO_CHECK(theirs.settings == first.settings,
               "[rank {}] rank {} asks for {}, rank 0 for {}; give all ranks the same", rank, other,
               theirs.settings, first.settings);
  }
  const auto pair = pair_on_one_gpu(ranks);
  if (!pair || gpus == Gpus::shared) return;
  const Identity& theirs = ranks[pair->second];
  fail(
      "[rank {}] ranks {} and {} are both on {} {} of {}; give each a GPU of its own, or let "
      "ranks share GPUs, which is for tests",
      rank, pair->first, pair->second, theirs.gpu, theirs.gpu_id, theirs.host);
}

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
  if (pair_on_one_gpu(ranks)) {
    imitate_a_host_of_its_own(self.rank);
    description += "; ranks share GPUs";
  }
  std::vector<std::string> hosts;
  for (const Identity& rank : ranks) hosts.push_back(rank.host);
  const ncclUniqueId id = shared_id(self);
  auto context = std::make_shared<CallContext>();
  auto session = std::make_shared<Session>(self.store, self.rank, context, options.ending);
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
