// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include "engine/agreement.h"
#include "engine/engine_core.h"

namespace zero {

void EngineCore::require_same(std::string key, std::string value) {
  ZERO_CHECK(!sealed_, "require_same({}): the engine is sealed; say it before seal()", key);
  same_.emplace_back(std::move(key), std::move(value));
}

void EngineCore::check_agreement() {
  require_agreement(world_, device_, "seal", describe(), mesh_->mesh().size(Axis::tensor));
  if (!device_.has_memory()) {  // a plan: what other ranks hold is unknown
    for (const Unit& unit : units_)
      shared_ranges_.resize(shared_ranges_.size() + unit.specs.size());
    return;
  }
  const std::vector<TensorCover> covers =
      exchange_covers(mesh_->axis(Axis::tensor), device_, units_);
  std::size_t parameter = 0;
  for (const Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.specs.size(); ++i, ++parameter) {
      shared_ranges_.emplace_back();
      if (!unit.specs[i].slice) continue;
      covers[parameter].check(unit.full_names[i], *unit.specs[i].slice);
      shared_ranges_.back() = covers[parameter].shared();
    }
  }
}

namespace {

/// A slice as one rank of the tensor axis has it.
std::string slice_text(const TensorSlice& slice) {
  std::string text;
  for (const TensorSlice::Range& range : slice.ranges) {
    text += fmt::format("{}[{}, {}) copy {}", text.empty() ? "" : ", ", range.begin,
                        range.begin + range.count, range.copy);
  }
  return text;
}

}  // namespace

/// What ranks must have in common: all, or those of one tensor index, whose slices and so schedules
/// are equal.
std::string EngineCore::describe() const {
  const ScheduleLimits& l = options_.limits;
  const OptimizerConfig& o = options_.optimizer;
  std::string text;
  const auto line = [&text](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("zero version", ZERO_VERSION);
  line("stage", options_.stage);
  line("compute dtype", name_of(options_.compute));
  line("gradient dtype", name_of(gradient_dtype_));
  line("reduction", name_of(options_.reduction));
  line("seed", options_.seed);
  line("gradient_clipping", options_.gradient_clipping);
  line("accumulation_steps", accumulation_steps_);
  line("overlap", options_.overlap);
  line("checked", options_.checked);
  line("replica_check_every", options_.replica_check_every);
  line("optimizer",
       fmt::format("{} beta1={} beta2={} epsilon={} weight_decay={} momentum={}", name_of(o.kind),
                   o.beta1, o.beta2, o.epsilon, o.weight_decay, o.momentum));
  for (const ParameterGroup& group : options_.groups) {
    line("parameter group",
         fmt::format("{} scale={} weight_decay={}", group.pattern, group.learning_rate_scale,
                     group.weight_decay ? fmt::format("{}", *group.weight_decay) : "default"));
  }
  line("limits", fmt::format("prefetch={} live={} persistence={} reuse={} reduce_bucket={}",
                             l.prefetch_elements, l.live_elements, l.persistence_threshold,
                             l.reuse_distance, l.reduce_bucket_elements));
  for (const Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.specs.size(); ++i) {
      const ParameterSpec& spec = unit.specs[i];
      line(fmt::format("unit {} parameter {}", unit.name, i),
           fmt::format("{} [{}] init={}({},{}) {}{}", unit.full_names[i],
                       fmt::join(spec.logical_shape(), ", "), static_cast<int>(spec.init.kind),
                       spec.init.a, spec.init.b, spec.trainable ? "trainable" : "frozen",
                       spec.slice ? fmt::format(" sliced along {}", spec.slice->dimension) : ""));
      if (spec.slice)
        line(fmt::format("{}unit {} slice {}", kOfGroup, unit.name, i), slice_text(*spec.slice));
    }
  }
  line(fmt::format("{}schedule", kOfGroup), fmt::format("{:016x}", training_.schedule.hash()));
  line("kernels", device_.bits());
  const PieceSizes pieces = device_.piece_sizes();
  line("pieces", fmt::format("{} rows of logits, padded to {} columns, {} bytes received",
                             pieces.logit_rows, pieces.logit_columns, pieces.received_bytes));
  for (const auto& [key, value] : same_) line(key, value);
  line("threads", device_.threads());
  return text;
}

}  // namespace zero
