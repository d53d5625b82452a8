// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What a configuration asks of the machine, for programs of libFuzzer, which are not linked with
// all of the project: the fuzz target answers these questions itself, so that none is asked.
#include "launch/process/device_choice.h"
#include "launch/rendezvous/cores.h"

namespace zero {

DeviceFacts device_facts(int /*ranks*/, RanksAre /*are*/) {
  fail("run.device is asked of the machine");
}
DeviceChoice choose_device(const DeviceFacts& /*facts*/) {
  fail("run.device is asked of the machine");
}
CoreFacts core_facts(int /*local_ranks*/) { fail("run.threads is asked of the machine"); }
ThreadChoice choose_threads(const CoreFacts& /*facts*/) {
  fail("run.threads is asked of the machine");
}

}  // namespace zero
