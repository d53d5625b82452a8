// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/device.h"
#include "launch/generate/generate_program.h"

namespace zero {

/// The threads that flags.threads asks for. Throws zero::Error.
int threads_of(const GenerateFlags& flags);

/// The device that flags.device asks for: of "auto" the first GPU that this build can use, or the
/// CPU. `reserve`: planned bytes of its buffers. Throws zero::Error if there is none.
std::unique_ptr<Device> open_device(const GenerateFlags& flags, const BytesByClass& reserve = {});
/// A device without memory that stands for it in a plan.
std::unique_ptr<Device> plan_device(const GenerateFlags& flags);

}  // namespace zero
