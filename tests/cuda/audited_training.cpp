// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/audited_training.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "engine/state_reads.h"
#include "tests/cuda/emulator/dependences.h"
#include "tests/engine/engine_parts.h"

namespace zero::testing {
namespace {

namespace emulated = cuda::emulated;

constexpr BatchShape kBatch{2, 7};
constexpr std::int64_t kTokens = kBatch.batch * kBatch.sequence;

/// What a trainer keeps in pinned memory: a micro-batch, and its loss.
class Staging {
 public:
  explicit Staging(Device& device)
      : inputs_(device.allocate_host(kTokens, DType::i32, MemoryClass::staging, "inputs")),
        targets_(device.allocate_host(kTokens, DType::i32, MemoryClass::staging, "targets")),
        loss_(device.allocate_host(1, DType::fp64, MemoryClass::staging, "loss")) {}

  double train(Training& training, const Batch& batch, float gradient_scale) const {
    std::ranges::copy(batch.inputs, inputs_.view().as<std::int32_t>().begin());
    std::ranges::copy(batch.targets, targets_.view().as<std::int32_t>().begin());
    training.model.train(inputs_.view(), targets_.view(), gradient_scale, loss_.view());
    training.engine.device().compute().synchronize();
    return loss_.view().as<double>().front();
  }

 private:
  Buffer inputs_;
  Buffer targets_;
  Buffer loss_;
};

/// Copies all parameters of this rank's shard to pinned memory while the next step is trained.
class ParameterCopies : public StateReader {
 public:
  explicit ParameterCopies(Engine& engine)
      : engine_(engine),
        tensors_(engine.states().tensors(StateKind::parameter)),
        last_(engine.unit_names().size()) {
    for (const LogicalTensor& tensor : tensors_) {
      for (const StateRun& run : engine.states().runs(tensor))
        runs_.push_back({&tensor, run, at(run.count)});
    }
    copies_ = engine.device().allocate_host(count_, DType::fp32, MemoryClass::staging, "copies");
  }
  int rounds() const override { return 1; }
  void submit(int /*round*/) override {
    Stream& transfer = engine_.device().transfer();
    for (const Run& each : runs_) {
      engine_.states().copy(*each.tensor, each.run.begin, copies_.slice(each.at, each.run.count),
                            transfer);
      last_[static_cast<std::size_t>(each.tensor->unit)] = transfer.record();
    }
  }
  Event read(int unit) override { return last_[static_cast<std::size_t>(unit)]; }
  std::int64_t vote() override { return 0; }
  void counted(std::int64_t /*sum*/) override {}

 private:
  struct Run {
    const LogicalTensor* tensor;
    StateRun run;
    std::int64_t at;
  };
  std::int64_t at(std::int64_t count) { return std::exchange(count_, count_ + count); }

  Engine& engine_;
  std::vector<LogicalTensor> tensors_;
  std::vector<Event> last_;
  std::vector<Run> runs_;
  std::int64_t count_ = 0;
  Buffer copies_;
};

void train(Communicator& host, const AuditedRun& run) {
  emulated::name_thread(fmt::format("rank {}", host.rank()));
  const auto device = cuda::open({.index = run.nccl ? host.rank() : 0});
  const StoreRank self{host.store(), host.rank(), host.size()};
  const auto gpus = run.nccl ? nccl::world(self, *device, *run.nccl) : nullptr;
  Mesh mesh(gpus ? *gpus : host, run.mesh);
  Training training(mesh, *device, run.engine, run.model, kBatch, run.accumulation, run.tensor,
                    run.recompute);
  EngineParts::of(training.engine).waits().skip(run.skipped);
  const Staging staging(*device);
  const auto data = static_cast<std::uint32_t>(mesh.data().rank());
  const float scale = 1.0F / static_cast<float>(kTokens * run.accumulation * mesh.data().size());
  std::optional<ParameterCopies> copies;
  if (run.copies_parameters) copies.emplace(training.engine);
  for (int step = 0; step < run.steps; ++step) {
    if (copies) training.engine.states().attach(&*copies);
    for (int j = 0; j < run.accumulation; ++j) {
      const std::uint32_t seed = 16 * static_cast<std::uint32_t>(j) + data;
      const Batch batch = Batch::random(kTokens, training.model.vocabulary(), seed);
      EXPECT_GT(staging.train(training, batch, scale), 0);
    }
    training.engine.step({.learning_rate = 1e-2});
    if (run.between == AuditedRun::Between::evaluation) {
      training.evaluate(Batch::random(kTokens, training.model.vocabulary(), data));
    }
  }
  training.engine.states().attach(nullptr);
  device->transfer().synchronize();
  if (run.end == AuditedRun::End::training) return;
  training.engine.states().hash();
  for (const auto& [name, count] : training.sizes()) training.write(name, training.read(name));
}

std::int64_t bytes_of(const std::vector<emulated::ByteRange>& ranges) {
  std::int64_t bytes = 0;
  for (const emulated::ByteRange& range : ranges) {
    bytes += static_cast<std::int64_t>(range.end - range.begin);
  }
  return bytes;
}

}  // namespace

EngineOptions audited_options(int stage) {
  EngineOptions options{.stage = stage, .compute = DType::bf16, .gradient_clipping = 1.0};
  options.limits.persistence_threshold = 0;
  return options;
}

cuda::emulated::WorkGraph graph_of(const AuditedRun& run) {
  emulated::reset({.order = run.order,
                   .recording = emulated::Settings::Recording::on,
                   .devices = run.nccl ? run.ranks : 1});
  local::run(run.ranks, [&](Communicator& world) { train(world, run); });
  emulated::WorkGraph graph = emulated::graph();
  emulated::reset();
  return graph;
}

std::vector<std::string> races(const cuda::emulated::WorkGraph& graph) {
  std::vector<std::string> found;
  const auto all = emulated::dependences(graph);
  for (const auto& one : emulated::unordered(graph, emulated::Clocks(graph), all)) {
    found.push_back(emulated::describe(graph, one));
  }
  return found;
}

std::string owner_of(const std::string& chain) { return chain.substr(0, chain.find('\'')); }

std::vector<std::string> summary_of(const cuda::emulated::WorkGraph& graph) {
  std::vector<std::string> chains;
  for (const std::string& name : graph.chains) {
    const auto kind = name.find(" (priority");
    chains.push_back(owner_of(name) + (kind == std::string::npos ? "" : name.substr(kind)));
  }
  const std::vector<std::string> names = chains;
  for (const emulated::WorkGraph::Node& node : graph.nodes) {
    std::string& chain = chains[node.chain];
    chain += fmt::format("\n{} reads {} writes {}", node.name, bytes_of(node.reads),
                         bytes_of(node.writes));
    if (node.awaited == emulated::WorkGraph::kNone) continue;
    const auto& awaited = graph.node(node.awaited);
    chain += fmt::format(" behind {} of {}", awaited.position, names[awaited.chain]);
  }
  std::ranges::sort(chains);
  return chains;
}

}  // namespace zero::testing
