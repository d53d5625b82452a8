// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/disk_calls.h"

#include <atomic>

namespace zero::files {
namespace {

std::atomic<std::int64_t> calls_begun{0};
std::atomic<std::int64_t> calls_ended{0};
thread_local int open_calls = 0;  // one within another

}  // namespace

DiskCalls disk_calls() noexcept {
  const std::int64_t ended = calls_ended;  // read first: these have begun
  return {.begun = calls_begun, .ended = ended};
}

DiskCall::DiskCall() noexcept {
  if (open_calls++ == 0) ++calls_begun;
}

DiskCall::~DiskCall() {
  if (--open_calls == 0) ++calls_ended;
}

UncountedDiskCalls::UncountedDiskCalls() noexcept { ++open_calls; }

UncountedDiskCalls::~UncountedDiskCalls() { --open_calls; }

}  // namespace zero::files
