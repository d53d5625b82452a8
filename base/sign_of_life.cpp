// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/sign_of_life.h"

#include <atomic>

namespace zero {
namespace {

std::atomic<std::int64_t> signs_given{0};

}  // namespace

void give_sign_of_life() noexcept { signs_given.fetch_add(1, std::memory_order_relaxed); }

std::int64_t signs_of_life() noexcept { return signs_given.load(std::memory_order_relaxed); }

}  // namespace zero
