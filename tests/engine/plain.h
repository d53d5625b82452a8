// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "collectives/mesh.h"
#include "engine/engine.h"

namespace zero::plain {

/// A unit to register.
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

/// Five units of odd sizes: matrices and small parameters, one of a single element, an empty one.
std::vector<UnitSpec> odd_units();
/// `count` units of one matrix of `elements` each.
std::vector<UnitSpec> equal_units(int count, std::int64_t elements);

/// Everything gathered (persistence threshold 0), checked.
EngineOptions options(int stage, DType compute = DType::fp32);

/// Which part of a parameter rank `rank` of `ranks` on the tensor axis holds; nothing: all of it.
using Slicing =
    std::function<std::optional<TensorSlice>(const ParameterSpec& whole, int rank, int ranks)>;
/// Every parameter with dimensions in uneven parts, of the first dimension or (matrices of an odd
/// number of rows) of the last, in two ranges each; what has one dimension of less than twelve is
/// held by two ranks each.
std::optional<TensorSlice> odd_slices(const ParameterSpec& whole, int rank, int ranks);

std::string text(const MeshShape& mesh);

struct Setup {
  EngineOptions engine{};
  std::vector<UnitSpec> units = odd_units();  ///< logical shapes
  int accumulation_steps = 1;
  MeshShape mesh{};
  Slicing slicing{};
  /// The disk of a rank's file of states (EngineOptions::tiers); unset: that of the options.
  std::function<std::shared_ptr<files::FileSystem>(int rank)> states_disk{};
  MemorySpace memory = MemorySpace::host;  ///< apart: run() opens a test device
};

/// odd_units() in odd_slices() of a mesh.
Setup sliced_setup(int stage, const MeshShape& mesh, DType compute = DType::fp32);

/// An engine without a model: every unit forward, then backward in reverse. The gradient of an
/// element is made of its parameter, its place in the logical tensor and the micro-batch's number,
/// so a wrong parameter shows, and how tensors are sliced does not. All arithmetic is submitted to
/// the compute stream.
class Trainer {
 public:
  /// Makes the mesh, registers and seals.
  Trainer(Communicator& communicator, Device& device, const Setup& setup);

  Engine& engine() { return engine_; }
  const std::vector<UnitId>& units() const { return ids_; }
  /// The number of parameters of a unit.
  int parameters(UnitId unit) const {
    return static_cast<int>(setup_.units[static_cast<std::size_t>(unit.index)].parameters.size());
  }
  void forward();
  void backward(std::int64_t number);
  /// Micro-batches numbered as in the design, then the engine's step.
  StepReport step(double learning_rate = 0.01);
  /// Numbers the micro-batches as if `step` optimizer steps were done.
  void resume_at(std::int64_t step) { step_ = step; }

 private:
  Setup setup_;  // units as this rank holds them
  Mesh mesh_;
  Engine engine_;
  std::vector<UnitId> ids_;
  std::int64_t step_ = 0;
};

/// Runs `body` on every rank of a world of threads, with the CPU device, or a lazy test device
/// whose memory is apart.
void run(int world, const Setup& setup, const std::function<void(Trainer&, Communicator&)>& body);

/// Trains `steps` steps; the state hash all ranks found (throws zero::Error where they differ).
std::uint64_t train(int world, const Setup& setup, int steps);

/// What a view of the device's memory holds, fp32, bf16 or fp16, once compute has come to it.
std::vector<float> seen(Engine& engine, const View& values);
/// A full parameter, moment or gradient.
std::vector<float> read(Engine& engine, std::string_view name, StateKind kind);

}  // namespace zero::plain
