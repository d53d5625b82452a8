// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/seal_agreement.h"

#include <fmt/ranges.h>

#include "collectives/agreement.h"

namespace zero {
namespace {

/// The ranges of a slice.
std::string slice_text(const TensorSlice& slice) {
  std::string text;
  for (const TensorSlice::Range& range : slice.ranges) {
    text += fmt::format("{}[{}, {}) copy {}", text.empty() ? "" : ", ", range.begin,
                        range.begin + range.count, range.copy);
  }
  return text;
}

}  // namespace

std::string seal_agreement(const EngineOptions& options, int accumulation_steps,
                           std::span<const Unit> units, const Schedule& schedule,
                           const Device& device) {
  const ScheduleLimits& l = options.limits;
  const OptimizerConfig& o = options.optimizer;
  std::string text;
  const auto line = [&text](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("zero version", ZERO_VERSION);
  line("stage", options.stage);
  line("compute dtype", name_of(options.compute));
  line("gradient dtype", name_of(options.gradient.value_or(options.compute)));
  line("reduction", name_of(options.reduction));
  line("seed", options.seed);
  line("gradient_clipping", options.gradient_clipping);
  line("accumulation_steps", accumulation_steps);
  line("overlap", options.overlap);
  line("checked", options.checked);
  line("replica_check_every", options.replica_check_every);
  line("optimizer",
       fmt::format("{} beta1={} beta2={} epsilon={} weight_decay={} momentum={} moments={}",
                   name_of(o.kind), o.beta1, o.beta2, o.epsilon, o.weight_decay, o.momentum,
                   name_of(o.moments)));
  for (const ParameterGroup& group : options.groups) {
    line("parameter group",
         fmt::format("{} scale={} weight_decay={}", group.pattern, group.learning_rate_scale,
                     group.weight_decay ? fmt::format("{}", *group.weight_decay) : "default"));
  }
  line("limits", fmt::format("prefetch={} live={} persistence={} reuse={} reduce_bucket={}",
                             l.prefetch_elements, l.live_elements, l.persistence_threshold,
                             l.reuse_distance, l.reduce_bucket_elements));
  for (const Unit& unit : units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      line(fmt::format("unit {} parameter {}", unit.name, i),
           fmt::format("{} [{}] init={}({},{}) {}{}", unit.full_name(i),
                       fmt::join(spec.logical_shape(), ", "), static_cast<int>(spec.init.kind),
                       spec.init.a, spec.init.b, spec.trainable ? "trainable" : "frozen",
                       spec.slice ? fmt::format(" sliced along {}", spec.slice->dimension) : ""));
      if (spec.slice)
        line(fmt::format("{}unit {} slice {}", kPerGroupMark, unit.name, i),
             slice_text(*spec.slice));
    }
  }
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Use& use = schedule.steps[i].use;
    line(fmt::format("{}use {} of the order", kPerGroupMark, i),
         fmt::format("{}({}){}", name_of(use.phase),
                     units[static_cast<std::size_t>(use.unit.index)].name,
                     use.needs_parameters ? "" : " without parameters"));
  }
  line(fmt::format("{}schedule", kPerGroupMark), fmt::format("{:016x}", schedule.hash()));
  line("kernels", device.bits());
  const PieceSizes pieces = device.piece_sizes();
  line("pieces", fmt::format("{} rows of logits, padded to {} columns, {} bytes received",
                             pieces.logit_rows, pieces.logit_columns, pieces.received_bytes));
  line("threads", device.threads());
  return text;
}

}  // namespace zero
