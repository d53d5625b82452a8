// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/simd_target.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/primitives.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

const char* target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(target);

std::string_view simd_target() { return HWY_DYNAMIC_DISPATCH(target)(); }

std::string bits() { return "cpu " + std::string(simd_target()); }

}  // namespace zero::cpu
#endif  // HWY_ONCE
