// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// In a program of tests: keeps the process on the core on which it begins (ONE_CORE of
// zero_test()). Not ctest's PROCESSOR_AFFINITY, which Debian's does not have.
#include <sched.h>

namespace {

[[maybe_unused]] const bool kept = [] {
  const int core = ::sched_getcpu();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) return false;
  CPU_SET(core, &set);
  return ::sched_setaffinity(0, sizeof(set), &set) == 0;
}();

}  // namespace
