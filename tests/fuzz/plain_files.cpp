// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Files of models, for programs of libFuzzer, which are not linked with what reads checkpoints:
// their inputs are in memory, and in no checkpoint.
#include "weights/model_files.h"

namespace zero {

std::string read_model_text(const std::string& path, std::int64_t largest) {
  return read_text(files::disk(), path, largest);
}

}  // namespace zero
