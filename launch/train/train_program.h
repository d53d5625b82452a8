// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/train/train_flags.h"

namespace zero {

/// Trains, as the rank or ranks of this process. Returns the exit status. If all ranks know of a
/// failure, the first rank reports it and all end in good order; if only this rank knows, it
/// reports the failure and ends all ranks at once.
int train(const TrainFlags& flags, int* argc, char*** argv);

}  // namespace zero
