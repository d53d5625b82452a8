// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

/// A DeepSpeed key for the size of an axis; `nothing` is its value if the axis is not set.
struct Foreign {
  const char* key;
  Axis axis;
  std::int64_t nothing;
};
constexpr std::array kForeign = {
    Foreign{"tensor_parallel.autotp_size", Axis::tensor, 0},
    Foreign{"zero_optimization.mics_shard_size", Axis::shard, -1},
    Foreign{"zero_optimization.zero_hpz_partition_size", Axis::shard, 1},
};

std::string path_of(Axis axis) { return fmt::format("mesh.{}", name_of(axis)); }

/// Sets the axis from DeepSpeed's key. Throws if `mesh` or another DeepSpeed key has set it
/// otherwise. With a shard size, the other ranks become replicas.
void take(Configuration& values, const Foreign& foreign) {
  const std::int64_t size = values.integer(foreign.key);
  if (size == foreign.nothing) return;
  const std::string path = path_of(foreign.axis);
  const Configuration::Value& known = values.at(path);
  const bool set = known.source != "default";
  ZERO_CHECK(!set || values.integer(path) == size,
             "{}: {} is {}, but {} is {} ({}); give one of the two", values.source(), foreign.key,
             size, path, values.integer(path), known.source);
  values.resolve(path, size, foreign.key);
  if (foreign.axis == Axis::shard && values.at("mesh.replicate").source == "default") {
    values.resolve("mesh.replicate", -1, foreign.key);
  }
}

}  // namespace

MeshShape make_mesh_shape(Configuration& values, int world) {
  for (const Foreign& foreign : kForeign) take(values, foreign);
  const auto ranks = [&](Axis axis) { return static_cast<int>(values.integer(path_of(axis))); };
  const MeshShape asked{.replicate = ranks(Axis::replicate),
                        .shard = ranks(Axis::shard),
                        .tensor = ranks(Axis::tensor)};
  MeshShape shape;
  try {
    shape = asked.resolved(world);
  } catch (const Error& error) {
    const bool whole = std::min({asked.replicate, asked.shard, asked.tensor}) >= 1;
    const std::int64_t product = std::int64_t{asked.replicate} * asked.shard * asked.tensor;
    fail("{}: {}{}", values.source(), error.what(),
         whole && world == 1 ? fmt::format("; with --plan or --print-config: --world {}", product)
                             : "");
  }
  for (const Axis axis : kAllAxes) {
    if (ranks(axis) != shape.size(axis)) {
      values.resolve(path_of(axis), shape.size(axis), fmt::format("inferred for world {}", world));
    }
  }
  return shape;
}

TensorOptions make_tensor_options(const Configuration& values) {
  return {.sequence_parallel = values.boolean("mesh.sequence_parallel"),
          .chunks = static_cast<int>(values.integer("mesh.chunks"))};
}

std::vector<Option> mesh_options() {
  using enum ValueType;
  return {
      honour("mesh.replicate", integer, "1",
             "groups of ranks that each hold the whole model states (HSDP)")
          .from(-1, 1e6),
      honour("mesh.shard", integer, "-1",
             "ranks that share one copy of the model states; -1: what is left")
          .from(-1, 1e6),
      honour("mesh.tensor", integer, "1",
             "ranks that compute a part of each layer together; adjacent ranks")
          .from(-1, 1e6),
      honour("mesh.check_every", integer, "100",
             "steps between two comparisons of what several ranks hold and must have alike, by "
             "hashes; the end of a run makes one too; 0: never")
          .from(0, 1e9),
      honour("mesh.sequence_parallel", boolean, "false",
             "cut residual stream and norms over the tensor ranks too, by rows"),
      honour("mesh.chunks", integer, "2",
             "parts in which a product and what tensor ranks exchange of it overlap, at most")
          .from(1, 1024),
  };
}

}  // namespace zero
