// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "launch/config/train_config.h"

namespace zero {

/// The small files that a checkpoint holds beside its weights, by name and with their content, so
/// that the folder `weights` opens as it is: config.json, with every field that the folder model.hf
/// or run.init has in its own, and the files of the tokenizer in that folder, or else of
/// data.tokenizer. Throws zero::Error naming key and file.
std::map<std::string, std::string> weight_folder_files(const TrainConfig& config);

/// The files of transformers' tokenizers in a model's folder, and its defaults for generating text,
/// by name and with their content; chat templates in files of their own come in a list within
/// tokenizer_config.json if the folder has more than one. Throws zero::Error naming `key`, for
/// which they are copied, and the file.
std::map<std::string, std::string> tokenizer_files(const std::string& folder,
                                                   const std::string& key);

}  // namespace zero
