// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_source.h"

#include "checkpoint/hf/folder.h"
#include "checkpoint/model_files.h"

namespace zero {

std::vector<SafetensorsReader> open_weights(const std::string& path) {
  ModelFiles files;
  std::vector<SafetensorsReader> readers;
  for (const std::string& file : weight_files(path)) readers.emplace_back(files.open(file));
  return readers;
}

}  // namespace zero
