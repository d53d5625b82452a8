// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/damaged_checkpoint.h"

#include <exception>

namespace zero {

CheckpointFailure checkpoint_failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DamagedCheckpoint& error) {
    return {error.what(), true};
  } catch (const std::exception& error) {
    return {error.what(), false};
  }
  return {};
}

}  // namespace zero
