// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include "checkpoint/tensor_files.h"

namespace zero {

void load_weights(Engine& engine, const std::string& path, const NameMap& names) {
  load_tensors({engine.communicator(), engine.device()}, engine.state(StateKind::parameter), path,
               names);
  engine.publish_parameters();
}

void save_weights(Engine& engine, const std::string& path) {
  save_tensors({engine.communicator(), engine.device()}, engine.state(StateKind::parameter), path);
}

}  // namespace zero
