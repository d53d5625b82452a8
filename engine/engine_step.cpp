// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/engine_core.h"
#include "engine/planned_traffic.h"
#include "engine/replica_check.h"

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

bool has_nonfinite(HostPieces& pieces, const View& values) {
  bool found = false;
  pieces.read(values, [&](std::int64_t /*begin*/, const View& piece) {
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

}  // namespace

/// Reduces `sums`, a part of `sums_`, over all ranks on the communication stream, from the values
/// that earlier work of that stream leaves there.
void EngineCore::reduce_sums(const View& sums, ReduceOp op, std::string_view purpose) {
  Stream& communication = device_.communication();
  world_.all_reduce(sums_twin_.upload(communication, sums), op, communication,
                    {std::string(purpose), {}});
  sums_twin_.download(communication, sums);
}

/// The exact global sums of squares and of losses: one all-reduce of integers behind all reduces of
/// the step. The ranks of a tensor group share one loss.
ExactSum EngineCore::reduce_norm_and_loss(std::span<const double> losses, ExactSum& loss) {
  if (mesh_->mesh().index(Axis::tensor) != 0) losses = {};
  const View sums = sums_.view();
  Stream& communication = device_.communication();
  for (Stream* stream : {&device_.compute(), &communication}) {
    device_.kernels().flush_norms(*stream);
  }
  // Compute writes the losses, and sums the norm if no reduction does. After this all-reduce, peers
  // update their shards in memory that ranks share, so the all-reduce must run after this rank's
  // last read of that memory.
  communication.wait(device_.compute().record());
  communication.submit_host("norm and loss", [sums, losses, &norm = reducer_->norm()] {
    ExactSum local_loss;
    local_loss.add(losses);
    const std::span<std::int64_t> limbs = sums.as<std::int64_t>();
    std::copy(norm.limbs().begin(), norm.limbs().end(), limbs.begin());
    std::copy(local_loss.limbs().begin(), local_loss.limbs().end(),
              limbs.begin() + ExactSum::kLimbs);
    norm.clear();
  });
  const Event read = communication.record();
  try {
    reduce_sums(sums, ReduceOp::sum, "gradient norm and loss");
    const Event done = communication.record();
    waits_.wait(device_.compute(), done, WaitSite::norm_before_update);
    waits_.synchronize(done, WaitSite::norm_before_update);
  } catch (...) {
    wait_quietly(read);  // the caller may free the losses once this throws
    throw;
  }
  ExactSum norm;
  if (!device_.has_memory()) return norm;  // a plan: no gradient, no loss
  const std::span<const std::int64_t> limbs = sums.as<const std::int64_t>();
  std::copy_n(limbs.begin(), ExactSum::kLimbs, norm.limbs().begin());
  std::copy_n(limbs.begin() + ExactSum::kLimbs, ExactSum::kLimbs, loss.limbs().begin());
  return norm;
}

/// The position, over all units, of the first parameter with a non-finite gradient in this rank's
/// shard.
std::int64_t EngineCore::first_nonfinite() {
  std::int64_t position = 0;
  for (const Unit& unit : units_) {
    for (int i = 0; i < unit.parameters(); ++i, ++position) {
      const View shard = state_->shard_values(unit.segment_of(i), StateKind::gradient);
      if (unit.spec(i).trainable && has_nonfinite(pieces_, state_->owned(unit, i, shard)))
        return position;
    }
  }
  return kNone;
}

/// Names the first parameter with a non-finite gradient, and the lowest rank that saw one or had a
/// non-finite loss.
void EngineCore::find_nonfinite(std::span<const double> losses, StepReport& report) {
  synchronize();
  const std::int64_t first = first_nonfinite();
  const bool bad_loss =
      std::any_of(losses.begin(), losses.end(), [](double value) { return !std::isfinite(value); });
  const std::span<std::int64_t> values = sums_.slice(0, 2).as<std::int64_t>();
  const auto agree = [&](std::int64_t parameter, std::int64_t rank) {
    values[0] = parameter;
    values[1] = rank;
    reduce_sums(sums_.slice(0, 2), ReduceOp::min, "non-finite gradients");
    device_.communication().synchronize();
  };
  agree(first, bad_loss ? world_.rank() : kNone);
  std::int64_t position = values[0];
  std::int64_t rank = values[1];
  // Every rank makes the same calls.
  agree(first, rank == kNone && first == position && first != kNone ? world_.rank() : kNone);
  if (rank == kNone) rank = values[1];
  report.nonfinite = "loss";
  report.nonfinite_rank = rank == kNone ? -1 : static_cast<int>(rank);
  for (const Unit& unit : units_) {
    if (position >= 0 && position < unit.parameters())
      report.nonfinite = unit.full_name(static_cast<int>(position));
    position -= unit.parameters();
  }
}

void EngineCore::update(Unit& unit, const StepOptions& options, float gradient_scale) {
  const Segment* segment = unit.trainable();
  if (segment == nullptr) return;
  const View gradient = segment->finished_gradient();
  const View compute = options_.compute == DType::fp32 ? View() : segment->own;
  for (const UpdateRun& run : segment->runs) {
    UpdateArguments arguments;
    arguments.master = segment->master.slice(run.begin, run.count);
    for (std::size_t i = 0; i < static_cast<std::size_t>(optimizer_->moments()); ++i) {
      arguments.moments[i] = segment->moments[i].slice(run.begin, run.count);
    }
    arguments.gradient = gradient.slice(run.begin, run.count);
    if (!compute.empty()) arguments.compute = compute.slice(run.begin, run.count);
    arguments.learning_rate = options.learning_rate * run.learning_rate_scale;
    arguments.weight_decay = run.weight_decay;
    arguments.gradient_scale = gradient_scale;
    arguments.step = steps_done_;
    optimizer_->update(device_.compute(), arguments);
  }
}

/// Updates the copies that live between steps from this rank's part.
void EngineCore::publish(Unit& unit, Kind kind) {
  waits_.wait(device_.communication(), device_.compute().record(), WaitSite::update_before_gather);
  for (Segment& segment : unit.segments) {
    if (segment.trainable == (kind == Kind::trainable))
      sharding_->publish(segment, {unit.name, {}});
  }
  unit.ready = device_.communication().record();
  settle();
}

void EngineCore::check_step(const StepOptions& options) const {
  using Limits = std::numeric_limits<float>;  // the update computes in fp32
  const int rank = world_.rank();
  ZERO_CHECK(
      micro_batch_ == accumulation_steps_ && !evaluating_ && !leased_,
      "[rank {}] step: {} of {} micro-batches are done; run forward and backward of all first",
      rank, micro_batch_, accumulation_steps_);
  ZERO_CHECK(
      options.losses.empty() || static_cast<int>(options.losses.size()) == accumulation_steps_,
      "[rank {}] step: {} losses were given, expected one per micro-batch, {}", rank,
      options.losses.size(), accumulation_steps_);
  ZERO_CHECK(options.loss_scale >= Limits::min() && options.loss_scale <= Limits::max(),
             "[rank {}] step: loss_scale is {}, expected more than 0 ({:.2g} to {:.2g})", rank,
             options.loss_scale, Limits::min(), Limits::max());
  double scale = 1;
  for (const ParameterGroup& group : options_.groups)
    scale = std::max(scale, group.learning_rate_scale);
  ZERO_CHECK(options.learning_rate >= 0 && options.learning_rate * scale <= Limits::max(),
             "[rank {}] step: learning_rate is {}, expected a finite value of 0 or more, at most "
             "{:.2g}",
             rank, options.learning_rate, Limits::max() / scale);
}

StepReport EngineCore::step(const StepOptions& options) {
  check_usable("step");
  check_step(options);
  StepReport report;
  report.step = ++steps_reported_;
  if (std::exchange(gradients_changed_, false)) reducer_->recount_norm(units_);
  ExactSum loss;
  const ExactSum norm = reduce_norm_and_loss(options.losses, loss);
  report.loss = loss.value();
  report.gradient_norm = std::sqrt(norm.value()) / options.loss_scale;
  if (norm.nonfinite() > 0 || loss.nonfinite() > 0) find_nonfinite(options.losses, report);
  report.axes = mesh_->traffic().since(traffic_mark_);
  report.traffic = report.axes.total();
  traffic_mark_ = mesh_->traffic();

  const float clip =
      report.nonfinite ? 1.0F : clip_factor(report.gradient_norm, options_.gradient_clipping);
  report.clipped = clip < 1.0F;
  if (!report.nonfinite) ++steps_done_;
  world_.set_step(report.step + 1);  // later gathers belong to the next step
  Renewal renewal;
  for (const int index : order_) {
    if (!report.nonfinite) {
      update(unit_at(index), options, static_cast<float>(clip / options.loss_scale));
      publish(unit_at(index), Kind::trainable);
    }
    issue_begin(index, renewal);
  }
  micro_batch_ = 0;
  report.exposed_seconds = device_.compute().waited_seconds() - waited_mark_;
  waited_mark_ = device_.compute().waited_seconds();
  last_exposed_ = exposed_;
  std::fill(exposed_.begin(), exposed_.end(), 0.0);
  const int every = options_.replica_check_every;
  if (every > 0 && report.step % every == 0) check_replicas();
  return report;
}

MeshTraffic EngineCore::planned_axes() const {
  check_sealed("planned_axes");
  return planned_traffic(resources(), *sharding_, *reducer_, units_, training_.schedule, *mesh_);
}

void EngineCore::check_replicas() {
  check_usable("check_replicas");
  if (!device_.has_memory()) return;
  synchronize();
  const OutsideStep guard(*this);
  ReplicaCheck(*state_, options_.compute).run(steps_reported_);
}

void EngineCore::check_between_steps(std::string_view call) const {
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_ && !evaluating_,
             "[rank {}] {}: only between optimizer steps", world_.rank(), call);
}

void EngineCore::check_gradients_finished(std::string_view call) const {
  ZERO_CHECK(
      micro_batch_ == accumulation_steps_ && !leased_ && !evaluating_,
      "[rank {}] {}: {} of {} micro-batches are done; change a gradient after the last one's "
      "backward and before step(), when it is finished and not used yet",
      world_.rank(), call, micro_batch_, accumulation_steps_);
}

void EngineCore::write(std::string_view name, StateKind kind, const View& values) {
  check_usable("write");
  const ModelState::Parameter parameter = state_->find(name, kind, values);
  if (kind == StateKind::parameter) check_between_steps("write");
  if (kind == StateKind::gradient) check_gradients_finished("write");
  synchronize();
  state_->write(*parameter.unit, parameter.index, kind, values);
  if (kind == StateKind::parameter) publish_parameters();
  if (kind == StateKind::gradient) gradients_changed_ = true;
}

void EngineCore::publish_gradients() {
  check_usable("publish_gradients");
  check_gradients_finished("publish_gradients");
  synchronize();
  const OutsideStep guard(*this);
  for (const int index : order_) {
    Unit& unit = unit_at(index);
    if (Segment* segment = unit.trainable(); segment != nullptr)
      sharding_->finish_gradient(*segment, {unit.name, {}});
  }
  device_.communication().synchronize();
  gradients_changed_ = true;
}

void EngineCore::publish_parameters() {
  check_usable("publish_parameters");
  check_between_steps("publish_parameters");
  synchronize();
  const OutsideStep guard(*this);
  if (sharding_->in_common()) {  // a peer may still compute with the values that change now
    shards_.barrier(device_.communication(), {"publish_parameters"});
    device_.communication().synchronize();
  }
  for (const int index : order_) {
    Unit& unit = unit_at(index);
    for (Segment& segment : unit.segments) {
      if (segment.trainable) sharding_->spread_states(segment.master, segment, {unit.name, {}});
    }
    device_.communication().synchronize();
    for (Segment& segment : unit.segments) {
      if (segment.trainable && options_.compute != DType::fp32) {
        device_.kernels().convert(device_.compute(), segment.master, segment.own);
      }
      if (!segment.trainable) sharding_->spread_states(segment.full, segment, {unit.name, {}});
    }
    for (const Kind kind : {Kind::frozen, Kind::trainable}) publish(unit, kind);
  }
  Renewal renewal;
  for (const int index : order_) issue_begin(index, renewal);
}

}  // namespace zero
