// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include "checkpoint/tensor_files.h"
#include "checkpoint/tensor_split.h"

namespace zero {

void load_weights(Engine& engine, const std::string& path, const NameMap& names) {
  const auto tensors = split_tensors(engine.state(StateKind::parameter), names);
  load_tensors({engine.communicator(), engine.device(), engine.pieces()}, tensors, path, names);
  engine.publish_parameters();
}

void save_weights(Engine& engine, const std::string& path, const NameMap& names) {
  const auto tensors = split_tensors(engine.state(StateKind::parameter), names);
  save_tensors({engine.communicator(), engine.device(), engine.pieces()}, tensors, path);
}

}  // namespace zero
