// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "engine/waits.h"

namespace zero {

/// Every site, for tests that leave each out in turn.
inline constexpr std::array kWaitSites = {
    WaitSite::gather_before_use,     WaitSite::publish_before_use,
    WaitSite::release_before_gather, WaitSite::gradient_before_reduce,
    WaitSite::reduce_before_rewrite, WaitSite::update_before_gather,
    WaitSite::norm_before_update,    WaitSite::read_before_update,
    WaitSite::states_before_update,  WaitSite::update_before_write,
    WaitSite::fetch_before_gather,   WaitSite::gather_before_fetch};
/// Those of devices with memory of their own, whose states are in no file.
inline constexpr std::span kWaitSitesOfGpus = std::span(kWaitSites).first<8>();
inline std::string_view name_of(WaitSite site) {
  static constexpr std::array<std::string_view, kWaitSites.size()> kNames = {
      "gather_before_use",      "publish_before_use",    "release_before_gather",
      "gradient_before_reduce", "reduce_before_rewrite", "update_before_gather",
      "norm_before_update",     "read_before_update",    "states_before_update",
      "update_before_write",    "fetch_before_gather",   "gather_before_fetch"};
  return kNames.at(static_cast<std::size_t>(site));
}

}  // namespace zero
