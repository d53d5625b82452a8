// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/simulation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "architecture/decoder_shape.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/mesh.h"
#include "engine/engine.h"
#include "launch/config/train_config.h"
#include "launch/plan/exact_plan.h"
#include "launch/telemetry/instruments.h"
#include "launch/train/memory_fit.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/training_state.h"
#include "model/model.h"

namespace zero {
namespace {

constexpr int kSteps = 2;  // the first warms up: gathers of a step begin in the one before

BackendKind backend_of(const TrainConfig& config, const Machine& machine) {
  const BackendKind backend = machine.backend();
  const bool fast = backend == BackendKind::nccl && config.run.sums == nccl::Sums::fast;
  return fast ? BackendKind::nccl_fast : backend;
}

/// "h.12" and "h.3" are of one kind, "h.*".
std::string kind_of(const std::string& unit) {
  const std::size_t dot = unit.rfind('.');
  const bool numbered = dot != std::string::npos && dot + 1 < unit.size() &&
                        std::all_of(unit.begin() + static_cast<std::ptrdiff_t>(dot) + 1, unit.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  return numbered ? unit.substr(0, dot + 1) + "*" : unit;
}

/// A rank on a device with a virtual clock.
class RankSimulation {
 public:
  RankSimulation(const TrainConfig& config, const Machine& machine, const OperationRates& rates,
                 int rank, Meetings* meetings)
      : config_(config),
        cores_(config.run.device == DeviceKind::cpu
                   ? CoreShare::of(machine.times.cores, std::min(machine.devices, config.world),
                                   config.run.threads)
                   : CoreShare{.compute_share = machine.times.beside_communication}),
        times_(machine, rates, config.engine.compute, cores_),
        links_(machine,
               {.world = config.world, .backend = backend_of(config, machine), .cores = cores_},
               meetings),
        device_(planned_device(config, clock(machine))),
        communicator_(planning::communicator(rank, config.world, backend_of(config, machine),
                                             device_.get(), &links_)),
        mesh_(*communicator_, config.mesh),
        state_(config, mesh_, *device_, &times_) {
    result_.rank = rank;
  }

  /// Runs the steps; observes the last if `instruments` is not null.
  SimulatedRank run(Instruments* instruments) {
    for (int step = 1; step < kSteps; ++step) train_step();
    const Mark begin = device_->compute().mark();
    const RankTimes::Totals compute = times_.totals();
    const LinkTimes::Totals collectives = links_.totals();
    if (instruments != nullptr) observe(*instruments);
    const StepReport report = train_step();
    if (instruments != nullptr) instruments->end_step(1);
    result_.step_seconds = device_->compute().mark().seconds_since(begin).value();
    result_.compute = times_.totals().since(compute);
    for (std::size_t i = 0; i < kLinkLevels; ++i) {
      result_.collectives[i] = links_.totals()[i] - collectives[i];
    }
    result_.exposed_seconds = report.exposed_seconds;
    result_.traffic = report.axes;
    result_.memory = MemoryUse::of(*device_);
    note_exposed();
    if (instruments != nullptr) instruments->stop();
    return std::move(result_);
  }

 private:
  planning::ClockOptions clock(const Machine& machine) {
    const bool cpu = config_.run.device == DeviceKind::cpu;
    return {.times = &times_,
            .inline_compute = cpu,
            .submit_seconds = cpu ? 0 : machine.times.submit,
            .compute_share = cores_.compute_share,
            .waiting_share = cpu ? cores_.waiting_share(machine.times.polling) : 1};
  }

  StepReport train_step() {
    const View ids = View::of(std::span(ids_));
    const std::vector<double> losses(static_cast<std::size_t>(config_.batch.accumulation));
    for (std::int64_t i = 0; i < config_.batch.accumulation; ++i) {
      state_.model().train(ids, ids, 1, View::of(std::span(&loss_, 1)));
      device_->compute().submit_host("loss", [] {});
    }
    return state_.engine().step({.losses = losses});
  }

  void observe(Instruments& instruments) {
    times_.tell(&instruments);
    device_->compute().listen(&instruments);
    listening_.emplace(*communicator_, instruments);
    instruments.begin_step(1, device_->compute());
  }

  void note_exposed() {
    const Engine& engine = state_.engine();
    const std::vector<std::string> units = engine.unit_names();
    const std::vector<double> by_use = engine.exposed_by_use();
    double left = result_.exposed_seconds;
    for (std::size_t i = 0; i < by_use.size(); ++i) {
      const int unit = engine.schedule().steps[i].use.unit.index;
      if (by_use[i] > 0)
        result_.exposed[kind_of(units[static_cast<std::size_t>(unit)])] += by_use[i];
      left -= by_use[i];
    }
    // What rounding leaves of the differences is no wait.
    if (left > 1e-9 * result_.exposed_seconds) result_.exposed["the boundary"] = left;
  }

  const TrainConfig& config_;
  CoreShare cores_;
  RankTimes times_;
  LinkTimes links_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> communicator_;
  Mesh mesh_;
  TrainingState state_;
  std::vector<std::int32_t> ids_ =
      std::vector<std::int32_t>(static_cast<std::size_t>(state_.inputs().count()));
  double loss_ = 0;
  std::optional<Listening> listening_;
  SimulatedRank result_;
};

/// The first tensor rank of each kind, and how many tensor ranks are of it.
std::map<int, int> tensor_kinds(const TrainConfig& config) {
  std::map<int, int> kinds;
  std::map<std::array<std::int64_t, 4>, int> first;  // by the sizes of a rank's slices
  for (int rank = 0; rank < config.mesh.tensor; ++rank) {
    const DecoderShape local =
        DecoderSplit::of(config.model, rank, config.mesh.tensor, DecoderSplit::Tables::cut).local;
    const std::array sizes{local.heads, local.kv_heads, local.hidden_width(), local.vocabulary};
    ++kinds[first.try_emplace(sizes, rank).first->second];
  }
  return kinds;
}

void check_figures(const Machine& machine, DType dtype) {
  const bool half = dtype != DType::fp32;
  const auto require = [&](double figure, std::string_view key, std::string_view example) {
    ZERO_CHECK(figure > 0,
               "{}: {} is missing; a simulation of {} ranks in {} needs it, for example "
               "{}",
               machine.source, key, machine.world(), name_of(dtype), example);
  };
  require(machine.reached(dtype), half ? "compute (or peak)" : "compute_fp32 (or peak_fp32)",
          "\"400TFLOP/s\"");
  require(machine.times.memory_bandwidth, "memory_bandwidth", "\"3.35TB/s\"");
  if (machine.devices > 1) require(machine.within_host, "links.within_host", "\"300GB/s\"");
  if (machine.hosts > 1) require(machine.between_hosts, "links.between_hosts", "\"40GB/s\"");
}

/// The machine's hosts and devices that `world` ranks take.
Machine used_part(Machine machine, int world) {
  ZERO_CHECK(world <= machine.world(),
             "{}: {} x {} (hosts x devices) are {} devices, expected at least one for each of the "
             "{} ranks; set hosts to {}",
             machine.source, machine.hosts, machine.devices, machine.world(), world,
             div_ceil(world, machine.devices));
  machine.hosts = static_cast<int>(div_ceil(world, machine.devices));
  machine.devices = std::min(machine.devices, world);
  return machine;
}

/// The largest part of a step.
std::string limit_of(const SimulatedRank& rank) {
  std::vector<std::pair<double, std::string>> parts{
      {rank.compute.arithmetic, "products"},
      {rank.compute.memory, "memory bandwidth"},
      {rank.other_seconds(), "submission, and compute slowed down by collectives"}};
  const double all = rank.collective_seconds();
  for (std::size_t i = 0; all > 0 && i < kLinkLevels; ++i) {
    const double exposed = rank.exposed_seconds * rank.collectives[i] / all;
    const auto level = static_cast<LinkLevel>(i);
    parts.emplace_back(
        exposed, level == LinkLevel::latency ? "latency of links" : std::string(name_of(level)));
  }
  return std::ranges::max(parts).second;
}

std::string document(const Instruments& instruments, int rank) {
  const auto origin =
      std::chrono::duration_cast<std::chrono::nanoseconds>(instruments.origin().time_since_epoch());
  return trace_head() + trace_events(instruments.trace(), rank, -origin.count()) + trace_tail(0);
}

/// Simulates ranks side by side, each on a thread; throws the first's error.
std::vector<SimulatedRank> run_ranks(const TrainConfig& config, const Machine& machine,
                                     Instruments* instruments) {
  OperationRates rates;
  if (!machine.times.operations.empty()) rates = OperationRates::read(machine.times.operations);
  const std::map<int, int> kinds = tensor_kinds(config);
  std::vector<int> simulated;
  for (const auto& [rank, count] : kinds) simulated.push_back(rank);
  Meetings meetings(simulated);
  std::vector<SimulatedRank> results(simulated.size());
  std::mutex failing;
  std::exception_ptr error;  // the first
  const auto run = [&](std::size_t i) {
    try {
      RankSimulation rank(config, machine, rates, simulated[i],
                          simulated.size() > 1 ? &meetings : nullptr);
      results[i] = rank.run(i == 0 ? instruments : nullptr);
      results[i].stands_for = kinds.at(simulated[i]) * config.data_ranks();
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!error) error = std::current_exception();
      meetings.fail();
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < simulated.size(); ++i) threads.emplace_back(run, i);
    } catch (...) {
      meetings.fail();  // those that run would wait for the others
      throw;
    }
    run(0);
  }
  if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace

double SimulatedRank::collective_seconds() const {
  return std::accumulate(collectives.begin(), collectives.end(), 0.0);
}

double SimulatedRank::other_seconds() const {
  return std::max(0.0, step_seconds - compute.arithmetic - compute.memory - exposed_seconds);
}

Simulation simulate(const TrainConfig& given, const Machine& whole) {
  TrainConfig config = without_saves(given);
  const Machine machine = used_part(whole, config.world);
  ZERO_CHECK(config.run.device == machine.kind,
             "{}: kind is \"{}\", and run.device \"{}\"; give both one value", machine.source,
             machine.kind == DeviceKind::cuda ? "gpu" : "cpu",
             config.run.device == DeviceKind::cuda ? "cuda" : "cpu");
  if (tiers_are_auto(config.values)) {
    fit_memory(config, backend_of(config, machine),
               {.bytes = machine.budget(),
                .host = machine.host_memory / machine.devices,
                .source = machine.source});
  }
  const TierOptions& tiers = config.engine.tiers;
  ZERO_CHECK(
      !uses_host(tiers),
      "{}: zero_optimization.{}.device is \"cpu\", but no copies between a GPU and its host are "
      "simulated; set it to \"none\"",
      config.values.source(),
      tiers.optimizer == Tier::host ? "offload_optimizer" : "offload_param");
  ZERO_CHECK(machine.kind == DeviceKind::cpu || !config.recompute.plan.inputs_on_host,
             "{}: activation_checkpointing.cpu_checkpointing is true, but no copies between a GPU "
             "and its host are simulated; set it to false",
             config.values.source());
  ZERO_CHECK(!uses_file(tiers),
             "{}: zero_optimization.{}.device is \"nvme\", but no disk is simulated; set it to "
             "\"none\"",
             config.values.source(),
             tiers.optimizer == Tier::file ? "offload_optimizer" : "offload_param");
  check_figures(machine, config.engine.compute);
  choose_recompute(config, backend_of(config, machine));
  std::optional<Instruments> instruments;
  if (!config.run.trace.empty()) {
    instruments.emplace(InstrumentOptions{.trace = true,
                                          .trace_events = config.run.trace_events,
                                          .seconds = HostClock::Seconds::of_device});
  }
  Simulation simulation{.machine = machine,
                        .stage = config.engine.stage,
                        .mesh = config.mesh,
                        .backend = backend_of(config, machine),
                        .tokens = static_cast<double>(config.tokens_per_step())};
  simulation.ranks = run_ranks(config, machine, instruments ? &*instruments : nullptr);
  const int traced = simulation.ranks.front().rank;
  double flop = 0;
  for (const SimulatedRank& rank : simulation.ranks) {
    flop += rank.compute.flop * rank.stands_for;
    simulation.bytes = std::max(simulation.bytes, rank.memory.bounded());
  }
  std::ranges::stable_sort(simulation.ranks, std::greater(), &SimulatedRank::step_seconds);
  simulation.step_seconds = simulation.slowest().step_seconds;
  constexpr double kLongestStep = 1e8;  // three years, within nanoseconds of 64 bits
  ZERO_CHECK(
      simulation.step_seconds > 0 && simulation.step_seconds < kLongestStep,
      "{}: a step would take {:g} s, limited by {}, expected above 0 and below {:g} s: check "
      "the figures and their units",
      machine.source, simulation.step_seconds, limit_of(simulation.slowest()), kLongestStep);
  simulation.flop_share =
      flop / (simulation.step_seconds * machine.peak(config.engine.compute) * config.world);
  if (instruments) simulation.trace = document(*instruments, traced);
  simulation.limited_by = limit_of(simulation.slowest());
  const MachineTimes& times = machine.times;
  if (times.between_failures > 0) {
    simulation.failures =
        Failures{times.between_failures / machine.hosts, times.save, times.restart};
  }
  return simulation;
}

}  // namespace zero
