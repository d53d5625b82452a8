// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The step that live_memory() listens to.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "collectives/mesh.h"
#include "device/lifetime_plan.h"
#include "device/memory_ledger.h"
#include "engine/engine.h"
#include "launch/config/train_config.h"
#include "launch/train/live_memory.h"
#include "launch/train/training_state.h"
#include "model/activation_trace.h"
#include "model/model.h"

namespace zero {
namespace {

using LiveList = std::vector<LiveMemory::Tensor>;

std::int64_t bytes_of_all(std::span<const LiveTensor> tensors) {
  std::int64_t bytes = 0;
  for (const LiveTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

/// Listens to the micro-batches of a step.
class StepTrace final : public ActivationTrace {
 public:
  /// The engine's tensors around and in one lease.
  struct Of {
    std::vector<LiveTensor> before, within;
    int moment = 0;  ///< the lease's first, or what would be it
    std::int64_t micro_batch = 0;
  };

  void start_micro_batch(const Engine& engine, std::int64_t number, const View& activations) {
    start(activations);
    engine_ = &engine;
    number_ = number;
    leases_.clear();
    head_ = 0;
  }
  /// Keeps, of each lease, the micro-batch of most bytes.
  void end_micro_batch() {
    most_.resize(leases_.size());
    for (std::size_t i = 0; i < leases_.size(); ++i) {
      if (bytes_of_all(leases_[i].within) > bytes_of_all(most_[i].within)) most_[i] = leases_[i];
    }
  }

  /// The leases of the newest micro-batch, and their largest of all micro-batches.
  const std::vector<Of>& newest() const { return leases_; }
  const std::vector<Of>& most() const { return most_; }
  /// The lease that computes the loss: the first of backward.
  std::size_t head() const { return head_; }

  void unit(std::string_view name, Phase phase) override {
    ActivationTrace::unit(name, phase);
    if (engine_ == nullptr || leases_.size() == static_cast<std::size_t>(leases())) return;
    if (head_ == 0 && phase == Phase::backward) head_ = leases_.size();
    leases_.push_back({engine_->live_tensors(), {}, static_cast<int>(moments().size()), number_});
  }

 private:
  /// Looks at the first work of a lease.
  void moment_begins() override {
    if (!leases_.empty() && leases_.back().within.empty())
      leases_.back().within = engine_->live_tensors();
  }

  const Engine* engine_ = nullptr;
  std::int64_t number_ = 0;
  std::vector<Of> leases_, most_;
  std::size_t head_ = 0;
};

class LiveStep {
 public:
  LiveStep(const TrainConfig& config, Mesh& mesh, Device& device)
      : device_(device),
        micro_batches_(config.batch.accumulation),
        config_(without_saves(config)),
        state_(config_, mesh, device, &trace_),
        data_apart_(device.ledger().snapshot().labels.contains("staging/inputs on the device")) {
    live_.rank = mesh.world().rank();
    live_.allocated = device.ledger().snapshot().peak;
  }

  LiveMemory run() {
    Engine& engine = state_.engine();
    LiveList before = of_engine(engine.live_tensors());
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(state_.inputs().count()));
    double loss = 0;
    for (std::int64_t i = 0; i < micro_batches_; ++i) {
      trace_.start_micro_batch(engine, i + 1, state_.model().activations());
      state_.model().train(View::of(std::span(ids)), View::of(std::span(ids)), 1,
                           View::of(std::span(&loss, 1)));
      trace_.end_micro_batch();
    }
    ranges_ = trace_.ranges();
    LiveList backward = of_engine(engine.live_tensors());
    engine.step({});
    LiveList step = of_engine(engine.live_tensors());

    const auto end = static_cast<int>(trace_.moments().size());
    add_phase("before", std::move(before), 0);
    for (const auto& [name, lease] :
         {std::pair("forward", trace_.head()), std::pair("loss", trace_.head() + 1)}) {
      const StepTrace::Of& of = trace_.newest().at(lease);
      add_phase(name, of_engine(of.before), of.moment);
    }
    add_phase("backward", std::move(backward), end);
    add_phase("step", std::move(step), end);
    find_peak();
    find_arena();
    return std::move(live_);
  }

 private:
  static LiveList of_engine(std::span<const LiveTensor> tensors) {
    LiveList live;
    for (const LiveTensor& each : tensors) {
      live.push_back(
          {each.memory_class, std::string(each.unit), std::string(each.what), each.bytes});
    }
    return live;
  }

  /// Adds the activations that `alive` holds of; the chunks of a tensor are one.
  template <typename Alive>
  void add_activations(LiveList& live, const Alive& alive) const {
    std::map<std::pair<std::string_view, std::int64_t>, std::int64_t> bytes;
    for (const LiveRange& range : ranges_) {
      if (alive(range)) bytes[{range.name, range.layer}] += range.bytes;
    }
    for (const auto& [tensor, own] : bytes) {
      const auto& [name, layer] = tensor;
      live.push_back({MemoryClass::activations, layer < 0 ? "" : fmt::format("block {}", layer),
                      std::string(name), own});
    }
  }

  /// Adds token ids or the loss of a micro-batch: the host's and, if its memory is apart, the
  /// device's.
  void add_data(LiveList& live, std::string_view what, const View& values) const {
    live.push_back({MemoryClass::staging, "", std::string(what), values.bytes()});
    if (!data_apart_) return;
    live.push_back(
        {MemoryClass::staging, "", fmt::format("{} on the device", what), values.bytes()});
  }

  static BytesByClass by_class(const LiveList& live) {
    BytesByClass bytes{};
    for (const LiveMemory::Tensor& each : live) {
      bytes[static_cast<std::size_t>(each.memory_class)] += each.bytes;
    }
    return bytes;
  }

  /// Between two moments no work runs, so nothing is live but values.
  void add_phase(std::string name, LiveList live, int moment) {
    add_activations(live, [&](const LiveRange& range) { return range.alive_before(moment); });
    if (name == "before" || name == "forward") add_data(live, "targets", state_.inputs());
    if (name == "before" || name == "forward" || name == "loss")
      add_data(live, "inputs", state_.inputs());
    if (name == "loss" || name == "backward") add_data(live, "loss", state_.loss());
    live_.phases.push_back({std::move(name), by_class(live)});
  }

  /// Memory of work itself, or beside the device's, in use at any moment of a micro-batch.
  void add_scratch(LiveList& live) const {
    for (const auto& [key, bytes] : device_.ledger().snapshot().labels) {
      const auto [memory_class, what] = MemoryLabel::of_key(key);
      if (memory_class == MemoryClass::communication || key == "activations/scratch" ||
          key == "activations/kept inputs") {
        live.push_back({memory_class, "", what, bytes});
      }
    }
  }

  /// Live bytes of activations at each moment.
  std::vector<std::int64_t> activation_bytes() const {
    std::vector<std::int64_t> bytes(trace_.moments().size() + 1, 0);
    for (const LiveRange& range : ranges_) {
      bytes[static_cast<std::size_t>(std::max(range.first, 0))] += range.bytes;
      const auto behind = static_cast<std::size_t>(range.last) + 1;
      if (behind < bytes.size()) bytes[behind] -= range.bytes;
    }
    std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
    bytes.pop_back();
    return bytes;
  }

  void find_peak() {
    const std::vector<std::int64_t> activations = activation_bytes();
    std::int64_t most = -1;
    int peak = 0;
    for (std::size_t i = 0; i < activations.size(); ++i) {
      const auto lease = static_cast<std::size_t>(trace_.moments()[i].lease);
      const std::int64_t bytes = activations[i] + bytes_of_all(trace_.most()[lease].within);
      if (bytes > most) {
        most = bytes;
        peak = static_cast<int>(i);
      }
    }
    const StepTrace::Moment& moment = trace_.moments()[static_cast<std::size_t>(peak)];
    const auto lease = static_cast<std::size_t>(moment.lease);
    const StepTrace::Of& of = trace_.most()[lease];
    LiveList live = of_engine(of.within);
    add_activations(live, [&](const LiveRange& range) { return range.alive_at(peak); });
    add_scratch(live);
    add_data(live, "inputs", state_.inputs());
    if (lease <= trace_.head()) add_data(live, "targets", state_.inputs());
    if (lease >= trace_.head()) add_data(live, "loss", state_.loss());
    std::ranges::stable_sort(live, std::greater(), &LiveMemory::Tensor::bytes);
    live_.peak = {fmt::format("{} of {}: {}", name_of(moment.phase), moment.unit, moment.work),
                  by_class(live)};
    live_.micro_batch = of.micro_batch;
    live_.tensors = std::move(live);
  }

  void find_arena() {
    const LifetimePlan& places = state_.model().activation_places();
    const LifetimePlan::Peak peak = places.peak();
    live_.arena = {.bytes = places.total(), .least = peak.bytes, .alive = {}};
    for (const LifetimePlan::Place& each : peak.alive) {
      live_.arena.alive.push_back({MemoryClass::activations, "", each.name, each.bytes});
    }
  }

  Device& device_;
  std::int64_t micro_batches_;
  TrainConfig config_;
  StepTrace trace_;
  TrainingState state_;
  bool data_apart_;  // the device's memory has its own token ids and losses
  std::vector<LiveRange> ranges_;
  LiveMemory live_;
};

}  // namespace

LiveMemory live_memory(const TrainConfig& config, Mesh& mesh, Device& device) {
  return LiveStep(config, mesh, device).run();
}

}  // namespace zero
