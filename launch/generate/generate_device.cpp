// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_device.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "launch/generate/generate_flags.h"
#include "launch/rendezvous/cores.h"

namespace zero {

int threads_of(const GenerateFlags& flags, int local_ranks) {
  int threads = choose_threads(core_facts(local_ranks)).threads;
  if (flags.threads != "auto") {
    const char* const end = flags.threads.data() + flags.threads.size();
    const auto [stop, error] = std::from_chars(flags.threads.data(), end, threads);
    ZERO_CHECK(error == std::errc{} && stop == end && threads >= 1 && threads <= 1024,
               "--threads is {}; expected auto, or 1 to 1024", flags.threads);
  }
  return threads;
}

DeviceKind device_kind(const GenerateFlags& flags, int ranks) {
  ZERO_CHECK(ranks == 1 || flags.device != "cuda",
             "--device cuda: {} ranks; expected one: several answer on CPUs", ranks);
  if (flags.device != "auto") return flags.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  if (ranks > 1) return DeviceKind::cpu;
  return choose_device(device_facts(1, RanksAre::processes)).kind;
}

std::string device_note(const GenerateFlags& flags, int ranks) {
  if (flags.device != "auto" || ranks > 1) return "";
  const auto missing = device_facts(1, RanksAre::processes).missing;
  if (!missing) return "";
  return fmt::format(
      "--device auto: {}: it computes on the CPU; for the GPU {}; --device cpu leaves this line "
      "out",
      missing->why, missing->remedy);
}

std::unique_ptr<Device> open_device(DeviceKind kind, int threads, const BytesByClass& reserve) {
  if (kind == DeviceKind::cpu) return cpu::open({.threads = threads});
  return cuda::open({.index = 0, .reserve = reserve});
}

std::unique_ptr<Device> plan_device(DeviceKind kind, int threads) {
  if (kind == DeviceKind::cpu) return planning::open(threads);
  return planning::open(1, Memory::apart, DeviceKind::cuda);
}

}  // namespace zero
