// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/compute_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "engine/engine.h"
#include "engine/value_hash.h"
#include "model/model.h"

namespace zero {
namespace {

/// All of `values` for rank `to` of a group, nothing for the others.
Slices all_for(const View& values, int to, int ranks) {
  Slices slices{.buffer = values, .ranges = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    slices.ranges.push_back({0, rank == to ? values.count() : 0});
  }
  return slices;
}

void swap_values(const View& one, const View& other) {
  auto* const bytes = static_cast<std::byte*>(one.data());
  std::swap_ranges(bytes, bytes + one.bytes(), static_cast<std::byte*>(other.data()));
}

}  // namespace

ComputeCheck::ComputeCheck(std::int64_t every, std::uint64_t seed, Engine& engine, Mesh& mesh,
                           const Model& model)
    : every_(every),
      seed_(seed),
      engine_(engine),
      mesh_(mesh),
      device_(engine.device()),
      blocks_(model.blocks_with_input()) {
  ZERO_CHECK(!blocks_.empty(),
             "run.check_compute_every is {}, but no block keeps its input whole, from which it "
             "could be computed again; leave it out, or set "
             "activation_checkpointing.partition_activations to false",
             every);
  if (mesh.data().size() == 1) return;
  const BlockPass pass = model.block_pass(blocks_.front());
  input_ = device_.allocate_host(pass.input.count(), pass.input.dtype(), MemoryClass::staging,
                                 "input of a checked block");
  statistics_ = device_.allocate_host(pass.statistics.count(), pass.statistics.dtype(),
                                      MemoryClass::staging, "statistics of a checked block");
}

bool ComputeCheck::wants(std::int64_t layer) {
  const std::int64_t step = engine_.states().steps_done() + engine_.states().steps_skipped() + 1;
  if (step % every_ != 0 || step == checked_ || !device_.has_memory()) return false;
  const std::uint64_t drawn = hash_text(fmt::format("checked block of step {}", step), seed_);
  if (layer != blocks_[drawn % blocks_.size()]) return false;
  checked_ = step;
  return true;
}

PassHashes ComputeCheck::hash(const BlockPass& pass) const {
  device_.compute().synchronize();
  PassHashes hashes;
  for (const BlockPass::Output& output : pass.outputs) {
    hashes.push_back(static_cast<std::int64_t>(hash_values(output.values, 0)));
  }
  return hashes;
}

/// The input of the rank before, in this object's memory.
void ComputeCheck::receive_input(const BlockPass& pass) {
  Communicator& data = mesh_.data();
  Stream& stream = device_.communication();
  const int next = (data.rank() + 1) % data.size();
  const int previous = (data.rank() + data.size() - 1) % data.size();
  for (const auto& [mine, theirs] :
       {std::pair(pass.input, input_.view()), std::pair(pass.statistics, statistics_.view())}) {
    data.all_to_all(all_for(mine, next, data.size()), all_for(theirs, previous, data.size()),
                    stream, {"input of a checked block", {}});
  }
  stream.synchronize();
}

void ComputeCheck::swap_input(const BlockPass& pass) {
  swap_values(pass.input, input_.view());
  swap_values(pass.statistics, statistics_.view());
}

std::vector<CheckedPass> ComputeCheck::gather(const CheckedPass& mine, std::size_t outputs) const {
  Communicator& world = mesh_.world();
  const auto part = static_cast<std::ptrdiff_t>(outputs);
  std::vector<std::int64_t> rows(3 * outputs * static_cast<std::size_t>(world.size()));
  auto at = rows.begin() + 3 * part * world.rank();
  for (const PassHashes* const hashes : {&mine.first, &mine.again, &mine.of_previous}) {
    std::ranges::copy(*hashes, at);
    at += part;
  }
  host_all_gather(world, device_, Slices::even(View::of(std::span(rows)), world.size()),
                  {"hashes of a checked block", {}});
  std::vector<CheckedPass> all;
  for (auto row = rows.cbegin(); row != rows.cend(); row += 3 * part) {
    const auto take = [&](int i) { return PassHashes(row + i * part, row + (i + 1) * part); };
    all.push_back({take(0), take(1), take(2)});
  }
  return all;
}

void ComputeCheck::check(const BlockPass& pass, const std::function<void()>& again) {
  CheckedPass mine{.first = hash(pass), .again = {}, .of_previous = {}};
  if (mesh_.data().size() > 1) {
    receive_input(pass);
    swap_input(pass);
    again();
    mine.of_previous = hash(pass);
    swap_input(pass);
  }
  again();
  mine.again = hash(pass);
  const std::vector<CheckedPass> ranks = gather(mine, pass.outputs.size());
  const std::vector<ComputeFinding> findings = find_wrong_passes(ranks, mesh_.size(Axis::tensor));
  if (!findings.empty()) tell(pass, findings);
}

void ComputeCheck::tell(const BlockPass& pass, const std::vector<ComputeFinding>& findings) {
  const std::vector<std::string> hosts =
      all_gather_texts(mesh_.world(), device_, host_name(), "hosts of a checked block");
  for (const ComputeFinding& finding : findings) {
    std::vector<std::string> ranks;
    std::vector<std::string> suspects;
    for (const int rank : finding.ranks) {
      suspects.push_back(hosts[static_cast<std::size_t>(rank)]);
      ranks.push_back(fmt::format("rank {} (host {})", rank, suspects.back()));
    }
    found_.lines.push_back(fmt::format(
        "step {}: block {} computed again{} from the same input has other bits of {} than before: "
        "{}{} computed or kept {} wrongly (run.check_compute_every)",
        checked_, pass.layer, finding.by_peer ? " by a peer" : "",
        pass.outputs[finding.output].name, ranks.size() == 1 ? "" : "one of ",
        fmt::join(ranks, ", "), ranks.size() == 1 ? "it" : "them"));
    if (auto over = hosts_.add(checked_, std::move(suspects)); over && !found_.over) {
      found_.over = std::move(over);
    }
  }
}

ComputeCheck::Found ComputeCheck::take() { return std::exchange(found_, {}); }

}  // namespace zero
