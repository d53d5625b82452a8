// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/config/configuration.h"
#include "model/model_config.h"

namespace zero {

/// The model that the section "model" describes: by name, by sizes, or by a Hugging Face folder.
/// Fills in missing keys with defaults. Throws zero::Error naming the key that is missing, out of
/// range, or of another family.
ModelConfig make_model_config(Configuration& values);

}  // namespace zero
