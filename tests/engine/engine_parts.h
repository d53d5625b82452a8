// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.h"
#include "engine/engine_core.h"

namespace zero {

/// What an engine is made of, for tests that look into it or leave one of its waits out.
class EngineParts {
 public:
  static EngineCore& of(Engine& engine) { return *engine.core_; }
};

}  // namespace zero
