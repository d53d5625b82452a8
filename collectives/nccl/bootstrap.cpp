// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/bootstrap.h"

#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace zero::nccl {
namespace {

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

}  // namespace

std::string Identity::text() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n", version, gpu, gpu_id, host, settings);
}

Identity Identity::from(const std::string& text) {
  Identity one;
  std::istringstream lines(text);
  for (std::string* field : {&one.version, &one.gpu, &one.gpu_id, &one.host, &one.settings}) {
    ZERO_CHECK(static_cast<bool>(std::getline(lines, *field)),
               "\"{}\" does not say what a rank of NCCL is; all ranks need one build", text);
  }
  return one;
}

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

bool share_gpus(const std::vector<Identity>& ranks) { return pair_on_one_gpu(ranks).has_value(); }

}  // namespace zero::nccl
