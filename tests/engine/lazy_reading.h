// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "tests/engine/copying_reader.h"
#include "tests/engine/plain.h"

// What the tests of readers have in common.
namespace zero::plain {

/// The values of all states in the order of a reader's copies, for one rank alone.
inline std::vector<float> all_values(Engine& engine) {
  std::vector<float> all;
  for (const StateKind kind : {StateKind::parameter, StateKind::moment0, StateKind::moment1}) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      const std::vector<float> values = read(engine, tensor.name, kind);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

/// Odd units, one with a frozen parameter.
inline Setup half_frozen(int accumulation_steps = 1) {
  Setup setup{options(3, DType::bf16), odd_units(), accumulation_steps};
  setup.units[1].parameters.push_back({"frozen", {9, 14}, init::normal(1.0F), false});
  return setup;
}

/// The body on one rank whose streams run as late as they may.
inline void lazily(const Setup& given, const std::function<void(Trainer&)>& body) {
  Setup lazy = given;
  lazy.memory = MemorySpace::device;
  run(1, lazy, [&](Trainer& trainer, Communicator&) { body(trainer); });
}

}  // namespace zero::plain
