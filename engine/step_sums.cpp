// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/step_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/agreement.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void wait_quietly(const Event& event) noexcept {
  try {
    event.synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the caller throws another error
  }
}

template <typename T>
bool any_nonfinite(std::span<const T> elements) {
  return std::any_of(elements.begin(), elements.end(),
                     [](T value) { return !std::isfinite(to_float(value)); });
}

bool has_nonfinite(StateAccess& access, const View& values) {
  bool found = false;
  access.read(values, [&](std::int64_t /*begin*/, const View& piece) {
    switch (piece.dtype()) {
      case DType::bf16:
        found = found || any_nonfinite(piece.as<const bfloat16>());
        break;
      case DType::fp16:
        found = found || any_nonfinite(piece.as<const float16>());
        break;
      default:
        found = found || any_nonfinite(piece.as<const float>());
    }
  });
  return found;
}

/// All parameters in the order of backward: units as in `order`, of each the last parameter first.
std::vector<ModelState::Parameter> backward_order(std::span<const Unit> units,
                                                  std::span<const int> order) {
  std::vector<ModelState::Parameter> places;
  for (const int of : order) {
    const Unit& unit = units[static_cast<std::size_t>(of)];
    for (int i = unit.parameters() - 1; i >= 0; --i) places.push_back({&unit, i});
  }
  return places;
}

/// The index in `places` of the first parameter with a non-finite gradient in this rank's shard.
std::int64_t first_nonfinite(const ModelState& state,
                             std::span<const ModelState::Parameter> places) {
  const auto found = std::ranges::find_if(places, [&](const ModelState::Parameter& place) {
    const Unit& unit = *place.unit;
    if (!unit.spec(place.index).trainable) return false;
    const View shard = state.shard_values(unit.segment_of(place.index), StateKind::gradient);
    return has_nonfinite(state.context().access, state.owned(unit, place.index, shard));
  });
  return found == places.end() ? kNone : found - places.begin();
}

}  // namespace

void GivenValues::add_write(std::string_view name, StateKind kind, const View& values) {
  lines_ += fmt::format("write({}, {}): values of hash {:016x}\n", name, name_of(kind),
                        hash_values(values, 0));
}

void GivenValues::add_restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  lines_ += fmt::format("restore: {} steps done, {} skipped\n", steps_done, steps_skipped);
}

std::string GivenValues::text(std::int64_t step, const StepOptions& options) const {
  return fmt::format("step: {}\n{}learning_rate: {}\nloss_scale: {}\n", step, lines_,
                     options.learning_rate, options.loss_scale);
}

std::int64_t GivenValues::hash(std::int64_t step, const StepOptions& options) const {
  return static_cast<std::int64_t>(hash_text(text(step, options), 0));
}

void GivenValues::require_equal(std::int64_t sum, std::int64_t step, const StepOptions& options,
                                Communicator& world, Device& device) const {
  const auto mine = static_cast<std::uint64_t>(hash(step, options));
  if (static_cast<std::uint64_t>(sum) == mine * static_cast<std::uint64_t>(world.size())) return;
  require_agreement(world, device, "step", text(step, options));
  fail(
      "[rank {}] step {}: the sum of hashes of all ranks' settings is not that of equal ones, but "
      "the settings are equal; memory or a transport has changed a value: test the hosts",
      world.rank(), step);
}

StepSums::StepSums(CountedMesh& mesh, Device& device, const Waits& waits)
    : mesh_(mesh),
      device_(device),
      waits_(waits),
      sums_(device.allocate_host(kCount, DType::i64, MemoryClass::communication, "norm and loss")),
      mirror_(device, kCount, DType::i64, MemoryClass::communication,
              "norm and loss, to be summed") {}

/// Reduces `sums`, a part of `sums_`, over all ranks on the communication stream, from the values
/// that earlier work of that stream leaves there.
void StepSums::all_reduce(const View& sums, ReduceOp op, std::string_view purpose) {
  Stream& communication = device_.communication();
  mesh_.world().all_reduce(mirror_.upload(communication, sums), op, communication,
                           {std::string(purpose), {}});
  mirror_.download(communication, sums);
}

StepSums::Totals StepSums::reduce(const Addends& addends) {
  const View sums = sums_.view();
  Stream& communication = device_.communication();
  for (Stream* stream : {&device_.compute(), &communication}) {
    device_.kernels().flush_norms(*stream);
  }
  // Compute writes the losses, and sums the norm if no reduction does. After this all-reduce, peers
  // update their shards in memory that ranks share, so the all-reduce must run after this rank's
  // last read of that memory.
  communication.wait(device_.compute().record());
  const bool counts_losses = mesh_.mesh().index(Axis::tensor) == 0;
  const std::span<const double> losses = counts_losses ? addends.losses : std::span<const double>();
  const std::array<std::int64_t, kVotes - 1> votes{addends.reader_vote, addends.vote,
                                                   addends.given};
  communication.submit_host("norm and loss", [sums, losses, votes, &squares = addends.squares,
                                              &home = addends.home] {
    ExactSum local_loss;
    local_loss.add(losses);
    const std::span<std::int64_t> limbs = sums.as<std::int64_t>();
    std::copy(squares.limbs().begin(), squares.limbs().end(), limbs.begin());
    std::copy(local_loss.limbs().begin(), local_loss.limbs().end(),
              limbs.begin() + ExactSum::kLimbs);
    std::copy(votes.begin(), votes.end(), limbs.end() - kVotes);
    limbs.back() = home.failure().empty() ? 0 : 1;  // gradients of what was fetched are complete
    squares.clear();
  });
  const Event read = communication.record();
  try {
    all_reduce(sums, ReduceOp::sum, "gradient norm and loss");
    const Event done = communication.record();
    waits_.wait(device_.compute(), done, WaitSite::norm_before_update);
    waits_.synchronize(done, WaitSite::norm_before_update);
  } catch (...) {
    wait_quietly(read);  // the caller may free the losses once this throws
    throw;
  }
  Totals totals;
  if (!device_.has_memory()) return totals;
  const std::span<const std::int64_t> limbs = sums.as<const std::int64_t>();
  std::copy_n(limbs.begin(), ExactSum::kLimbs, totals.squares.limbs().begin());
  std::copy_n(limbs.begin() + ExactSum::kLimbs, ExactSum::kLimbs, totals.loss.limbs().begin());
  const std::span<const std::int64_t> votes_of_all = limbs.last<kVotes>();
  totals.reader_votes = votes_of_all[0];
  totals.votes = votes_of_all[1];
  totals.given = votes_of_all[2];
  totals.lost = votes_of_all[3];
  return totals;
}

StepSums::Origin StepSums::find_nonfinite(std::span<const double> losses, const ModelState& state,
                                          std::span<const int> order) {
  const std::int64_t self = mesh_.world().rank();
  const std::vector<ModelState::Parameter> places = backward_order(state.context().units, order);
  const std::int64_t first = first_nonfinite(state, places);
  const bool bad_loss =
      std::any_of(losses.begin(), losses.end(), [](double value) { return !std::isfinite(value); });
  const std::span<std::int64_t> values = sums_.slice(0, 2).as<std::int64_t>();
  const auto agree = [&](std::int64_t parameter, std::int64_t rank) {
    values[0] = parameter;
    values[1] = rank;
    all_reduce(sums_.slice(0, 2), ReduceOp::min, "non-finite gradients");
    device_.communication().synchronize();
  };
  agree(first, bad_loss ? self : kNone);
  const std::int64_t position = values[0];
  std::int64_t rank = values[1];
  // Every rank makes the same calls.
  agree(first, rank == kNone && first == position && first != kNone ? self : kNone);
  if (rank == kNone) rank = values[1];
  std::string name = "loss";
  if (position != kNone) {
    const ModelState::Parameter& place = places[static_cast<std::size_t>(position)];
    name = place.unit->full_name(place.index);
  }
  return {std::move(name), rank == kNone ? -1 : static_cast<int>(rank)};
}

}  // namespace zero
