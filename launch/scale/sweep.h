// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "base/dtype.h"
#include "device/device.h"

namespace zero {

/// What stays the same when the world grows.
enum class Scaling : std::uint8_t {
  strong,  ///< the sequences of a step
  weak,    ///< the sequences of a step per rank
};
std::string_view name_of(Scaling scaling);

/// The axes of a mesh beside the shard axis, which has the other ranks.
struct SweepMesh {
  int replicate = 1;
  int tensor = 1;

  /// Of "shard", "tensor=2" or "replicate=2+tensor=2". Throws zero::Error.
  static SweepMesh from(std::string_view text);
  std::string text() const;
  friend bool operator==(const SweepMesh&, const SweepMesh&) = default;
};

/// One setting of a sweep: a row of its report, measured by several runs. A world of one process
/// is the same setting at any stage and scaling: the baseline.
struct ScalePoint {
  Scaling scaling = Scaling::strong;
  int stage = 0;
  SweepMesh mesh{};
  int world = 1;

  bool is_baseline() const { return world == 1; }
  /// "strong-stage3-tensor=2-world8", "one-process": a folder's name.
  std::string name() const;
  /// For people: "strong, stage 3, tensor=2, 8 ranks".
  std::string text() const;
  /// Whether the two differ in nothing but the world.
  bool same_line(const ScalePoint& other) const {
    return scaling == other.scaling && stage == other.stage && mesh == other.mesh;
  }
};

/// What zero_scale is asked.
struct Sweep {
  std::vector<Scaling> scalings{Scaling::strong, Scaling::weak};
  std::vector<int> worlds{1, 2, 4, 8};
  std::vector<int> stages{0, 3};
  std::vector<SweepMesh> meshes{SweepMesh()};
  bool baseline = true;  ///< one process is measured, also if `worlds` lacks it

  std::string model_text{};
  DecoderShape model{};
  /// Of `sequence`, `batch` and `micro`.
  static constexpr std::int64_t kMost = std::int64_t{1} << 24;
  std::int64_t sequence = 0;  ///< tokens of a sequence
  std::int64_t batch = 8;     ///< sequences of a step: strong in all, weak of a rank
  std::int64_t micro = 0;     ///< most sequences of a rank at once; 0: all of them
  DType dtype = DType::bf16;
  DeviceKind device = DeviceKind::cpu;
  std::int64_t steps = 10;  ///< measured, behind those of the warm-up
  std::int64_t warmup = 2;
  std::vector<std::string> overrides{};  ///< --set of zero_train

  /// In the order in which they are measured, each once. Adds a line to `left_out` for each
  /// combination that makes no sense: a mesh that does not divide a world. Throws zero::Error if a
  /// batch is no multiple of its ranks.
  std::vector<ScalePoint> points(std::vector<std::string>& left_out) const;
  /// The sequences of a step.
  std::int64_t batch_of(const ScalePoint& point) const;
  /// Tokens of a point's file: no other point of the sweep has a say in its question.
  std::int64_t data_tokens(const ScalePoint& point) const;
  /// zero_train's configuration of a point, with token file and log.
  nlohmann::ordered_json configuration(const ScalePoint& point, const std::string& data,
                                       const std::string& log) const;
  /// Throws zero::Error, as zero_train does, if a point's configuration is none, or if an override
  /// contradicts the sweep.
  void check(const std::vector<ScalePoint>& points) const;
};

}  // namespace zero
