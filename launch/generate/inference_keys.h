// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/config/option.h"

namespace zero {

/// Every key of a configuration of DeepSpeed's inference that is known, and what is done with it.
const std::vector<Option>& inference_keys();

/// The table's name of a key: init_inference() and older versions call some otherwise.
std::string inference_key(std::string path);

}  // namespace zero
