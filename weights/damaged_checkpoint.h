// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace zero {

/// A checkpoint that is proven not to be as it was saved, or not whole: a missing file, another
/// size, another checksum, another format. Every other zero::Error on the way to a checkpoint (a
/// file that cannot be opened or read) says nothing about it.
class DamagedCheckpoint : public Error {
 public:
  explicit DamagedCheckpoint(const std::string& message) : Error(message) {}
};

/// A checkpoint of a format version that this program does not read: no damage.
class UnknownFormat : public Error {
 public:
  explicit UnknownFormat(const std::string& message) : Error(message) {}
};

/// Why a checkpoint, or a part of it, cannot be used.
struct CheckpointFailure {
  std::string why{};     ///< empty: it can be
  bool damaged = false;  ///< it is proven to be damaged; else another try may succeed

  explicit operator bool() const { return !why.empty(); }
};

/// Runs `work`, and gives its failure, if any.
template <typename Work>
CheckpointFailure checkpoint_failure_of(const Work& work) {
  try {
    work();
  } catch (const DamagedCheckpoint& error) {
    return {error.what(), true};
  } catch (const std::exception& error) {
    return {error.what(), false};
  }
  return {};
}

/// Runs `work`, which judges what was read and touches no disk: its failure is damage.
template <typename Work>
auto damage_of(const Work& work) {
  try {
    return work();
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const UnknownFormat&) {
    throw;
  } catch (const Error& error) {
    throw DamagedCheckpoint(error.what());
  }
}

}  // namespace zero
