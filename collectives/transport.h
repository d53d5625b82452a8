// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/slices.h"
#include "device/device.h"

namespace zero {

/// Moves values between the memory of this process and that of its peers. Every call blocks the
/// caller until this rank's part of the collective is over; one thread at a time. Arguments are
/// those of Communicator, already checked; `purpose` names the call in errors. A new transport is a
/// class derived from this one, and a BlockingBackend that connects its ranks and hands it over
/// with set_transport() (CONTRIBUTING.md).
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Sets the step of later calls, which messages about long waits name.
  virtual void set_step(std::int64_t step) = 0;

  virtual void all_gather(View mine, const Slices& full, std::string_view purpose) = 0;
  virtual void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              std::string_view purpose) = 0;
  virtual void all_reduce(View values, ReduceOp op, std::string_view purpose) = 0;
  virtual void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) = 0;
  virtual void broadcast(View values, int root, std::string_view purpose) = 0;
  virtual void barrier(std::string_view purpose) = 0;
};

}  // namespace zero
