// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/config/configuration.h"
#include "launch/process/environment.h"

namespace zero {

DeviceFacts device_facts(int ranks, RanksAre are) {
  const int gpus = cuda::visible_devices();
  const auto given = process_environment()("CUDA_VISIBLE_DEVICES");
  const bool given_one =
      are == RanksAre::processes && gpus == 1 && given && given->find(',') == std::string::npos;
  DeviceFacts facts{.ranks = ranks, .gpus = gpus, .given_one = given_one};
  for (int index = 0; index < std::min(ranks, gpus) && !facts.missing; ++index) {
    facts.missing = cuda::missing_code(index);
  }
  return facts;
}

DeviceChoice choose_device(const DeviceFacts& facts) {
  if (facts.gpus == 0) return {DeviceKind::cpu, "auto: no GPU that this build can use"};
  if (facts.missing) return {DeviceKind::cpu, "auto: " + facts.missing->why};
  if (facts.gpus >= facts.ranks) {
    return {DeviceKind::cuda, fmt::format("auto: {} GPU(s)", facts.gpus)};
  }
  if (facts.given_one) return {DeviceKind::cuda, "auto: the GPU of CUDA_VISIBLE_DEVICES"};
  return {DeviceKind::cpu,
          fmt::format("auto: {} GPU(s) for {} ranks of this host", facts.gpus, facts.ranks)};
}

void resolve_device(Configuration& values, int ranks, RanksAre are) {
  if (!values.is_null("run.device")) return;
  const DeviceChoice choice = choose_device(device_facts(ranks, are));
  values.resolve("run.device", choice.kind == DeviceKind::cuda ? "cuda" : "cpu", choice.why);
}

}  // namespace zero
