// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// Axes of a mesh. Ranks along `replicate` hold the same shards (HSDP), along `shard` different
/// parts of the model states; along `tensor` they compute different parts of each layer.
enum class Axis : std::uint8_t { replicate, shard, tensor };
inline constexpr std::array kAllAxes{Axis::replicate, Axis::shard, Axis::tensor};
inline constexpr std::size_t kAxes = kAllAxes.size();
std::string_view name_of(Axis axis);

/// Ranks along each axis. At most one may be -1: the world divided by the other two.
struct MeshShape {
  int replicate = 1;
  int shard = -1;
  int tensor = 1;

  int size(Axis axis) const;
  int ranks() const { return replicate * shard * tensor; }
  /// Ranks that compute different micro-batches, or tensor groups of them.
  int data_ranks() const { return replicate * shard; }
  /// "2 x 4 x 1": replicate x shard x tensor.
  std::string text() const;
  /// The shape with the -1 replaced, for a world of `world` ranks. If the sizes do not multiply to
  /// `world`, throws zero::Error naming the sizes, the world and sizes that would fit.
  MeshShape resolved(int world) const;
};

}  // namespace zero
