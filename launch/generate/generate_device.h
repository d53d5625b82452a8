// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "launch/process/device_choice.h"

namespace zero {

struct GenerateFlags;

/// The threads of one of the ranks of this host that flags.threads asks for. Throws zero::Error.
int threads_of(const GenerateFlags& flags, int local_ranks = 1);

/// The kind of device that flags.device asks for, for a job of so many ranks: "auto" means the
/// first GPU, or the CPU if there is none or this build has no code for it, and with several ranks
/// the CPU. Throws zero::Error if several ranks are to use GPUs.
DeviceKind device_kind(const GenerateFlags& flags, int ranks = 1);
/// A line for people if "auto" leaves a GPU alone for which this build has no code; empty
/// otherwise.
std::string device_note(const GenerateFlags& flags, int ranks = 1);

/// A device of a kind. `threads`: of a CPU; `reserve`: planned bytes of a GPU's buffers.
std::unique_ptr<Device> open_device(DeviceKind kind, int threads, const BytesByClass& reserve = {});
/// A device without memory that stands for it in a plan.
std::unique_ptr<Device> plan_device(DeviceKind kind, int threads);

}  // namespace zero
