// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/config/configuration.h"
#include "launch/config/train_config.h"
#include "launch/plan/written_config.h"

namespace zero {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr const char* kMeshForms = "expected shard, tensor=N, replicate=N or replicate=N+tensor=N";

/// Keys that a sweep sets, and the flag for each.
constexpr std::array<std::pair<std::string_view, const char*>, 15> kSweptKeys{
    {{"model", "--model"},
     {"data.train", "nothing: tokens are random"},
     {"data.sequence_length", "--sequence"},
     {"train_batch_size", "--batch"},
     {"train_micro_batch_size_per_gpu", "--micro"},
     {"gradient_accumulation_steps", "--micro"},
     {"zero_optimization.stage", "--stages"},
     {"mesh.replicate", "--meshes"},
     {"mesh.shard", "--meshes"},
     {"mesh.tensor", "--meshes"},
     {"bf16.enabled", "--dtype"},
     {"fp16.enabled", "--dtype"},
     {"run.device", "--device"},
     {"run.steps", "--steps"},
     {"run.log", "nothing: it is in the folder of --report"}}};

void check_swept_keys(const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const std::string key = canonical_path(text.substr(0, text.find('=')));
    for (const auto& [swept, flag] : kSweptKeys) {
      const bool inside = key.starts_with(std::string(swept) + ".");
      const bool around = std::string(swept).starts_with(key + ".");
      ZERO_CHECK(key != swept && !inside && !around, "--set {}: the sweep sets {}; give {}", text,
                 swept, flag);
    }
  }
}

int axis_size(std::string_view text, std::string_view whole) {
  const auto size = whole_number(text, 2, kMostRanks);
  ZERO_CHECK(size, "--meshes: found \"{}\", {}, N from 2 to {}", whole, kMeshForms, kMostRanks);
  return *size;
}

/// Why the point is left out, if its mesh does not divide its world; else empty.
std::string misfit(const ScalePoint& point) {
  const std::int64_t inner = std::int64_t{point.mesh.replicate} * point.mesh.tensor;
  if (point.world % inner != 0) {
    return fmt::format("{} is left out: {} does not divide {}", point.text(), point.mesh.text(),
                       counted(point.world, "rank"));
  }
  return "";
}

std::int64_t data_ranks(const ScalePoint& point) { return point.world / point.mesh.tensor; }

/// Strong scaling cuts one batch for each of its points: refuses it with one that fits them all.
void check_batch(const Sweep& sweep, const std::vector<ScalePoint>& points) {
  const auto found = std::ranges::find_if(points, [&](const ScalePoint& point) {
    return sweep.batch_of(point) % data_ranks(point) != 0;
  });
  if (found == points.end()) return;
  std::int64_t all = 1;  // its multiples fit, up to the most that can be given
  for (const ScalePoint& point : points) {
    if (point.scaling != Scaling::strong) continue;
    all = std::min(std::lcm(all, data_ranks(point)), Sweep::kMost + 1);
  }
  const std::int64_t fitting = round_up(sweep.batch, all);
  const std::string other = fitting <= Sweep::kMost
                                ? fmt::format("--batch {} (a multiple of {})", fitting, all)
                                : "fewer --worlds";
  fail("--batch {}: {} has {}; give {}, or --scaling weak", sweep.batch, found->text(),
       counted(data_ranks(*found), "data rank"), other);
}

}  // namespace

std::string_view name_of(Scaling scaling) { return scaling == Scaling::strong ? "strong" : "weak"; }

SweepMesh SweepMesh::from(std::string_view text) {
  SweepMesh mesh;
  if (text == "shard") return mesh;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('+'));
    const std::string_view key = part.substr(0, part.find('='));
    const bool known = key == "tensor" || key == "replicate";
    ZERO_CHECK(known && part.size() > key.size(), "--meshes: found \"{}\", {}", text, kMeshForms);
    int& axis = key == "tensor" ? mesh.tensor : mesh.replicate;
    ZERO_CHECK(axis == 1, "--meshes: found \"{}\" with two sizes of {}, {}", text, key, kMeshForms);
    axis = axis_size(part.substr(key.size() + 1), text);
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  ZERO_CHECK(mesh != SweepMesh(), "--meshes: found \"{}\", {}", text, kMeshForms);
  return mesh;
}

std::string SweepMesh::text() const {
  std::string text;
  if (replicate > 1) text = fmt::format("replicate={}", replicate);
  if (tensor > 1) text += fmt::format("{}tensor={}", text.empty() ? "" : "+", tensor);
  return text.empty() ? "shard" : text;
}

std::string ScalePoint::name() const {
  if (is_baseline()) return "one-process";
  const std::string of_mesh = mesh == SweepMesh() ? "" : "-" + mesh.text();
  return fmt::format("{}-stage{}{}-world{}", name_of(scaling), stage, of_mesh, world);
}

std::string ScalePoint::text() const {
  if (is_baseline()) return "one process";
  const std::string of_mesh = mesh == SweepMesh() ? "" : ", " + mesh.text();
  return fmt::format("{}, stage {}{}, {}", name_of(scaling), stage, of_mesh,
                     counted(world, "rank"));
}

std::vector<ScalePoint> Sweep::points(std::vector<std::string>& left_out) const {
  std::vector<ScalePoint> all;
  if (baseline) all.push_back({});
  for (const Scaling scaling : scalings) {
    for (const SweepMesh& mesh : meshes) {
      for (const int stage : stages) {
        for (const int world : worlds) {
          const ScalePoint point{.scaling = scaling, .stage = stage, .mesh = mesh, .world = world};
          const bool named_before = std::ranges::any_of(all, [&](const ScalePoint& each) {
            return each.world == world && each.same_line(point);
          });
          if (world == 1 || named_before) continue;
          const std::string why = misfit(point);
          why.empty() ? all.push_back(point) : left_out.push_back(why);
        }
      }
    }
  }
  check_batch(*this, all);
  ZERO_CHECK(!all.empty(), "--worlds: no point is left; give a world above 1");
  return all;
}

std::int64_t Sweep::batch_of(const ScalePoint& point) const {
  return point.scaling == Scaling::weak ? batch * point.world : batch;
}

std::int64_t Sweep::data_tokens(const ScalePoint& point) const {
  return batch_of(point) * sequence + 1;
}

nlohmann::ordered_json Sweep::configuration(const ScalePoint& point, const std::string& data,
                                            const std::string& log) const {
  const std::int64_t of_rank = batch_of(point) / data_ranks(point);
  std::int64_t rows = micro > 0 ? std::min(micro, of_rank) : of_rank;
  while (of_rank % rows != 0) --rows;
  nlohmann::ordered_json file{
      {"model", model_section_of(model)},
      {"data", {{"train", data}, {"sequence_length", sequence}}},
      {"train_batch_size", batch_of(point)},
      {"train_micro_batch_size_per_gpu", rows},
      {"zero_optimization", {{"stage", point.stage}}},
      {"mesh", {{"replicate", point.mesh.replicate}, {"shard", -1}, {"tensor", point.mesh.tensor}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}},
      {"run",
       {{"device", device == DeviceKind::cuda ? "cuda" : "cpu"},
        {"steps", warmup + steps},
        {"log", log}}}};
  if (dtype != DType::fp32) file[std::string(zero::name_of(dtype))] = {{"enabled", true}};
  return file;
}

void Sweep::check(const std::vector<ScalePoint>& points) const {
  check_swept_keys(overrides);
  for (const ScalePoint& point : points) {
    const nlohmann::json file = configuration(point, "tokens.bin", "run.log");
    make_train_config(Configuration::from_json(file, point.name(), overrides), point.world);
  }
}

}  // namespace zero
