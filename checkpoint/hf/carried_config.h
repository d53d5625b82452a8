// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/model_config.h"

namespace zero {

/// The text of the config.json of a model that has the weights of FOLDER and is described
/// elsewhere, for weights in fp32: the fields of FOLDER/config.json, but where the two differ, as
/// in the context, those of `model`. hf_config_text(model) if the folder has no config.json, or
/// one that does not become such a model's.
std::string carried_config(const std::string& folder, const ModelConfig& model);

}  // namespace zero
