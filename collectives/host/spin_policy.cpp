// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/spin_policy.h"

#include <algorithm>

namespace zero::host {

std::string usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string text(CPU_SETSIZE, '0');
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return text;
  for (std::size_t core = 0; core < text.size(); ++core) {
    if (CPU_ISSET(core, &cores)) text[core] = '1';
  }
  return text;
}

SpinPolicy::SpinPolicy(const std::vector<std::string>& cores) {
  std::string all(CPU_SETSIZE, '0');
  for (const std::string& one : cores) {
    for (std::size_t core = 0; core < std::min(one.size(), all.size()); ++core) {
      if (one[core] == '1') all[core] = '1';
    }
  }
  own_core_ = std::ranges::count(all, '1') >= static_cast<std::ptrdiff_t>(cores.size());
}

}  // namespace zero::host
