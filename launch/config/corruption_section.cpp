// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Checks of silent corruption: keys of the section run.

#include "device/device.h"
#include "launch/config/answers.h"
#include "launch/config/option.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

constexpr const char* kCollectives = "run.check_collectives";
constexpr const char* kCompute = "run.check_compute_every";

}  // namespace

std::vector<Option> corruption_options() {
  using enum ValueType;
  return {
      honour(kCollectives, boolean, "false",
             "compare checksums of what each rank sends and what each receives, in every "
             "collective; on CPUs"),
      honour(kCompute, integer, "0",
             "steps between checks of a drawn block, whose forward pass its rank and a "
             "data-parallel peer compute again: the same bits, or the host is named; 0: never; on "
             "CPUs")
          .from(0, 1e9),
  };
}

void refuse_corruption_checks(const Configuration& values, const TrainConfig::Run& run,
                              Refusals& refusals) {
  if (run.device == DeviceKind::cpu) return;
  const auto refuse = [&](const char* key) {
    refusals.add(refusal_of(values, {{key}},
                            "{} is {}, and run.device is \"cuda\": the check reads values where "
                            "the host computes with them; leave it out, or give run.device=cpu",
                            key, values.at(key).value.dump()));
  };
  if (run.check_collectives) refuse(kCollectives);
  if (run.check_compute_every > 0) refuse(kCompute);
}

}  // namespace zero
