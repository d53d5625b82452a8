// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inference/inference_model.h"

namespace zero::bench {

/// Weights of about the size that training leaves, without a file.
void fill_with_random_weights(InferenceModel& model);

}  // namespace zero::bench
