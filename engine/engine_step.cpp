// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/engine_core.h"
#include "optim/clipping.h"

namespace zero {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void wait_quietly(const Event& event) noexcept {
  try {
    event.synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): an error is on its way already
  }
}

template <typename T>
bool any_nonfinite(std::span<const T> elements) {
  return std::any_of(elements.begin(), elements.end(),
                     [](T value) { return !std::isfinite(to_float(value)); });
}

}  // namespace

bool EngineCore::has_nonfinite(const View& values) {
  bool found = false;
  pieces_.read(values, [&](std::int64_t /*begin*/, const View& piece) {
    found = found || (piece.dtype() == DType::fp32 ? any_nonfinite(piece.as<const float>())
                                                   : any_nonfinite(piece.as<const bfloat16>()));
  });
  return found;
}

/// Over all ranks, values of `sums_` as they are when the communication stream comes to them.
void EngineCore::reduce_sums(const View& sums, ReduceOp op, std::string_view purpose) {
  Stream& communication = device_.communication();
  world_.all_reduce(sums_twin_.upload(communication, sums), op, communication,
                    {std::string(purpose), {}});
  sums_twin_.download(communication, sums);
}

/// The exact global sum of squares, and of the losses: one all-reduce of integers behind all
/// reduces of the step. The ranks of a tensor group have one loss between them.
ExactSum EngineCore::reduce_norm_and_loss(std::span<const double> losses, ExactSum& loss) {
  if (mesh_->mesh().index(Axis::tensor) != 0) losses = {};
  const View sums = sums_.view();
  Stream& communication = device_.communication();
  for (Stream* stream : {&device_.compute(), &communication}) {
    device_.kernels().flush_norms(*stream);
  }
  // Compute writes the losses, and sums the norm if no reduction does. In common memory a rank that
  // has the norm goes on to overwrite its shard, which peers may read until they join the sum.
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

/// Names the first parameter with a non-finite gradient, and the lowest rank that saw one or had a
/// non-finite loss.
void EngineCore::find_nonfinite(std::span<const double> losses, StepReport& report) {
  synchronize();
  std::int64_t first = kNone;
  std::int64_t position = 0;
  for (const Unit& unit : units_) {
    const Segment* segment = unit.trainable();
    for (std::size_t i = 0; i < unit.specs.size(); ++i, ++position) {
      if (segment == nullptr || !unit.specs[i].trainable || first != kNone) continue;
      const Placement& placement = unit.placement(static_cast<int>(i));
      const std::int64_t shard_begin = segment->layout.shard() * shards_.rank();
      const std::int64_t low = std::max(placement.begin, shard_begin);
      const std::int64_t high =
          std::min(placement.begin + placement.count, shard_begin + segment->layout.shard());
      if (low < high && has_nonfinite(segment->gradient_shard.slice(low - shard_begin, high - low)))
        first = position;
    }
  }
  const bool bad_loss =
      std::any_of(losses.begin(), losses.end(), [](double value) { return !std::isfinite(value); });
  const View values = sums_.slice(0, 2);
  const auto agree = [&](std::int64_t parameter, std::int64_t rank) {
    values.as<std::int64_t>()[0] = parameter;
    values.as<std::int64_t>()[1] = rank;
    reduce_sums(values, ReduceOp::min, "non-finite gradients");
    device_.communication().synchronize();
  };
  agree(first, bad_loss ? world_.rank() : kNone);
  const std::int64_t parameter = values.as<std::int64_t>()[0];
  std::int64_t rank = values.as<std::int64_t>()[1];
  if (rank == kNone) {
    agree(first, first == parameter && parameter != kNone ? world_.rank() : kNone);
    rank = values.as<std::int64_t>()[1];
  } else {
    agree(first, kNone);  // every rank makes the same calls
  }
  report.nonfinite = "loss";
  report.nonfinite_rank = rank == kNone ? -1 : static_cast<int>(rank);
  position = parameter;
  for (const Unit& unit : units_) {
    if (position >= 0 && position < static_cast<std::int64_t>(unit.full_names.size())) {
      report.nonfinite = unit.full_names[static_cast<std::size_t>(position)];
    }
    position -= static_cast<std::int64_t>(unit.full_names.size());
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

/// Makes the copies that live between steps follow this rank's part.
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
  using Limits = std::numeric_limits<float>;  // the update has its numbers in fp32
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
  check_sealed("step");
  raise_failure();
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
  world_.set_step(report.step + 1);  // whose parameters are gathered from here on
  Renewal renewal;
  for (const int index : order_) {
    Unit& unit = units_[static_cast<std::size_t>(index)];
    if (!report.nonfinite) {
      update(unit, options, static_cast<float>(clip / options.loss_scale));
      publish(unit, Kind::trainable);
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

/// The bytes of one step from sizes alone; a test compares it with what the recorder counts.
MeshTraffic EngineCore::planned_axes() const {
  check_sealed("planned_traffic");
  const std::int64_t element = size_of(options_.compute);
  const int reduces = options_.reduction == ReductionPolicy::boundary ? 1 : accumulation_steps_;
  MeshTraffic traffic;
  const auto book = [&](const Communicator& along, Operation counted_as, Operation operation,
                        std::int64_t bytes, int times) {
    mesh_->booked(traffic, along)
        .add(counted_as, Communicator::sent_bytes(operation, bytes, along.size()) * times);
  };
  const auto add = [&](Operation counted_as, Operation operation, std::int64_t bytes, int times) {
    book(shards_, counted_as, operation, bytes, times);
  };
  const Communicator& replicas = mesh_->axis(Axis::replicate);
  for (const Window& window : training_.schedule.windows) {
    if (window.kind == Window::Kind::gradients) continue;
    for (const Segment& segment : units_[static_cast<std::size_t>(window.unit)].segments) {
      add(Operation::all_gather, Operation::all_gather,
          sharding_->window_elements(segment) * element, accumulation_steps_);
    }
  }
  for (const Unit& unit : units_) {
    const Segment* segment = unit.trainable();
    if (segment == nullptr) continue;
    const std::int64_t wire =
        reducer_->wire_bytes(*segment) / std::max<std::int64_t>(1, segment->layout.shard());
    const std::int64_t length = reducer_->chunk(*segment);
    for (std::int64_t begin = 0; begin < segment->layout.shard(); begin += length) {
      const std::int64_t count = std::min(length, segment->layout.shard() - begin);
      add(sharding_->reduce_traffic(), Operation::reduce_scatter, wire * count, reduces);
      book(replicas, Operation::all_reduce, Operation::all_reduce, count * size_of(DType::fp32),
           reduces);
    }
    add(Operation::all_gather, Operation::all_gather,
        sharding_->published_elements(*segment) * element, 1);
    add(Operation::all_reduce, Operation::all_gather,
        sharding_->finished_elements(*segment) * size_of(gradient_dtype_), 1);
  }
  book(world_, Operation::all_reduce, Operation::all_reduce, sums_.view().bytes(), 1);
  return traffic;
}

}  // namespace zero
