// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/config/option.h"

namespace zero {

struct GenerateFlags;

/// Every key of a configuration of DeepSpeed's inference that is known, and what is done with it.
const std::vector<Option>& inference_keys();

/// The table's name of a key: init_inference() and older versions call some otherwise.
std::string inference_key(std::string path);

/// Reads a configuration that was written for DeepSpeed's inference: ds.json of ZeRO-Inference
/// (zero_optimization, bf16, fp16) or the arguments of init_inference(). Puts its values where
/// `flags` have none of the command line. Returns lines for people: what took effect, and what
/// changes nothing here. Throws zero::Error naming, for all that is refused, the file, the key, the
/// value found and the one expected; of unknown keys, which may have been meant.
std::vector<std::string> apply_deepspeed_inference(const std::string& path, GenerateFlags& flags);

}  // namespace zero
