// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_device.h"

#include <charconv>

#include "base/error.h"
#include "launch/rendezvous/cores.h"
#include "launch/run_device.h"

namespace zero {
namespace {

bool on_gpu(const GenerateFlags& flags) {
  if (flags.device != "auto") return flags.device == "cuda";
  return choose_device(device_facts(1, RanksAre::processes)).kind == DeviceKind::cuda;
}

}  // namespace

int threads_of(const GenerateFlags& flags) {
  int threads = choose_threads(core_facts(1)).threads;
  if (flags.threads != "auto") {
    const char* const end = flags.threads.data() + flags.threads.size();
    const auto [stop, error] = std::from_chars(flags.threads.data(), end, threads);
    ZERO_CHECK(error == std::errc{} && stop == end && threads >= 1 && threads <= 1024,
               "--threads is {}; expected auto, or 1 to 1024", flags.threads);
  }
  return threads;
}

std::unique_ptr<Device> open_device(const GenerateFlags& flags, const BytesByClass& reserve) {
  if (!on_gpu(flags)) return cpu::open({.threads = threads_of(flags)});
  return cuda::open({.index = 0, .reserve = reserve});
}

std::unique_ptr<Device> plan_device(const GenerateFlags& flags) {
  if (!on_gpu(flags)) return planning::open(threads_of(flags));
  return planning::open(1, Memory::apart, "cuda");
}

}  // namespace zero
