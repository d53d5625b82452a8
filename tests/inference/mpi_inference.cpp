// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A model over the ranks of mpirun: mpi_inference SHARD TENSOR compares logits with those of one
// process; mpi_inference SHARD TENSOR LAYERS WIDTH VOCABULARY WEIGHTS prints memory and seconds of
// a larger one, and compares each rank's memory with its plan.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "inference/inference_model.h"
#include "tests/support/tiny_models.h"

namespace zero {
namespace {

/// Random weights without a file: a function of tensor and element.
void fill(InferenceModel& model) {
  model.load([](std::size_t tensor, std::int64_t begin, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto bits = static_cast<std::uint32_t>(begin + static_cast<std::int64_t>(i)) * 2654435761U +
                  static_cast<std::uint32_t>(tensor) * 40503U;
      bits = (bits ^ (bits >> 15)) * 2246822519U;
      values[i] = (static_cast<float>(bits >> 8) * 0x1p-23F - 1) * 0.05F;
    }
  });
}

using Part = InferenceModel::Part;

/// Logits of the last token of each pass of a sequence.
std::vector<float> answer(InferenceModel& model, std::uint32_t seed) {
  std::vector<float> all;
  const std::int64_t slot = model.cache().open();
  for (const std::size_t count : {9, 1, 1, 4}) {
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < count; ++i) {
      tokens.push_back((seed + static_cast<std::uint32_t>(i) * 31U) %
                       static_cast<std::uint32_t>(model.vocabulary()));
    }
    const Part part{slot, tokens};
    model.forward(std::span(&part, 1));
    all.insert(all.end(), model.logits(0).begin(), model.logits(0).end());
  }
  model.cache().close(slot);
  return all;
}

void check_plan(Communicator& world, const MeshShape& shape, const DecoderShape& config,
                const InferenceOptions& options, Device& used) {
  const auto planned_world = planning::communicator(world.rank(), world.size(), BackendKind::mpi);
  Mesh mesh(*planned_world, shape);
  const auto device = planning::open();
  const InferenceModel model(*device, config, options, &mesh);
  ZERO_CHECK(used.ledger().snapshot().labels == device->ledger().snapshot().labels,
             "[rank {}] memory is not as planned", world.rank());
}

void compare(Communicator& world, const MeshShape& shape) {
  const DecoderShape config = testing::small_llama({{"layers", 3},
                                                    {"width", 96},
                                                    {"heads", 4},
                                                    {"head_width", 24},
                                                    {"intermediate", 170},
                                                    {"context", 64}});
  Mesh mesh(world, shape);
  const auto device = cpu::open();
  for (const WeightFormat format : {WeightFormat::plain, WeightFormat::int8, WeightFormat::nf4}) {
    if (format != WeightFormat::plain && shape.tensor > 1) continue;
    const InferenceOptions options{.weights = format};
    InferenceModel model(*device, config, options, &mesh);
    fill(model);
    check_plan(world, shape, config, options, *device);
    InferenceModel whole(*device, config, options);
    fill(whole);
    const auto seed = static_cast<std::uint32_t>(mesh.index(Axis::shard)) * 7U;
    const std::vector<float> found = answer(model, seed);
    const std::vector<float> expected = answer(whole, seed);
    float most = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      most = std::max(most, std::abs(found[i] - expected[i]));
    }
    ZERO_CHECK(shape.tensor == 1 ? found == expected : most < 1e-4F,
               "[rank {}] logits differ by {} from those of one process", world.rank(), most);
  }
}

/// This process's part of memory that processes share, and its own: MiB.
double proportional_set_size() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::strtod(line.c_str() + 4, nullptr) / 1024;
  }
  return 0;
}

double sum(Communicator& world, Device& device, double value) {
  host_all_reduce(world, device, View::of(std::span(&value, 1)), ReduceOp::sum, {"sum", {}});
  return value;
}

void measure(Communicator& world, const MeshShape& shape, const DecoderShape& config,
             const std::string& weights) {
  using Clock = std::chrono::steady_clock;
  Mesh mesh(world, shape);
  const auto device = cpu::open();
  const double before = proportional_set_size();
  InferenceModel model(*device, config,
                       {.dtype = DType::bf16,
                        .weights = weight_format_from_name(weights),
                        .request_tokens = 256,
                        .rows = 64},
                       &mesh);
  fill(model);
  const std::vector<std::uint32_t> prompt(32, 5);
  const Part first{model.cache().open(), prompt};
  const Part next{first.slot, std::span(prompt).first(1)};
  model.forward(std::span(&first, 1));
  constexpr int kPasses = 4;
  const double waited = model.exposed_seconds().total;
  const auto begin = Clock::now();
  for (int i = 0; i < kPasses; ++i) model.forward(std::span(&next, 1));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / kPasses;
  const double exposed = (model.exposed_seconds().total - waited) / kPasses;
  const double memory = proportional_set_size();
  const double all = sum(world, *device, memory);
  const MemorySnapshot ledger = device->ledger().snapshot();
  double planned = 0;
  for (const MemoryClass each : all_memory_classes()) {
    planned += static_cast<double>(ledger.peak_of(each)) / (1 << 20);
  }
  fmt::print(
      "rank {}: planned {:.0f} MiB, uses {:.0f} MiB (before: {:.0f}), all ranks {:.0f}; "
      "pass {:.3f} s, exposed {:.3f}\n",
      world.rank(), planned, memory, before, all, seconds, exposed);
  ZERO_CHECK(memory - before < planned + 32, "[rank {}] uses {} MiB more than before, planned {}",
             world.rank(), memory - before, planned);
}

int run(int argc, char** argv) {
  ZERO_CHECK(argc == 3 || argc == 7,
             "usage: mpi_inference SHARD TENSOR [LAYERS WIDTH VOCABULARY WEIGHTS]");
  const MeshShape shape{1, std::atoi(argv[1]), std::atoi(argv[2])};
  const auto world = mpi::world(&argc, &argv);
  if (argc == 3) {
    compare(*world, shape);
    return 0;
  }
  const std::int64_t width = std::atoll(argv[4]);
  measure(*world, shape,
          testing::small_llama({{"layers", std::atoll(argv[3])},
                                {"width", width},
                                {"heads", width / 128},
                                {"kv_heads", width / 384},
                                {"head_width", 128},
                                {"intermediate", width / 3 * 8},
                                {"vocabulary", std::atoll(argv[5])},
                                {"context", 1024},
                                {"head", "tied"}}),
          argv[6]);
  return 0;
}

}  // namespace
}  // namespace zero

int main(int argc, char** argv) {
  try {
    return zero::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    zero::mpi::abort(1);
  }
}
