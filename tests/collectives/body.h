// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"

/// What every backend must do, as one body for ranks that are threads and ranks that are processes.
/// Each function is called by all ranks of `communicator` and throws zero::Error where a fact does
/// not hold. All memory is touched by work on `device`'s streams only, with the waits a user needs,
/// so any legal order of the streams must pass.
namespace zero::test {

/// One rank: its communicator and device, and the few verbs that the checks are made of.
class Rank {
 public:
  Rank(Communicator& communicator, Device& device) : comm(communicator), device_(device) {}

  Communicator& comm;

  int rank() const { return comm.rank(); }
  int world() const { return comm.size(); }
  Buffer allocate(std::int64_t count, DType dtype) const;
  SharedBuffer allocate_shared(std::int64_t count, DType dtype) const;
  /// On the compute stream: byte i becomes pattern(i).
  void fill_bytes(View view, std::function<std::uint8_t(std::int64_t)> pattern) const;
  /// On the compute stream: element i becomes value(i), rounded to the view's dtype.
  void fill(View view, std::function<double(std::int64_t)> value) const;
  /// On the communication stream, after all that was filled and before all that is read.
  void communicate(const std::function<void(Stream&)>& collective) const;
  /// Once the streams have passed: the view's elements.
  std::vector<double> read(View view) const;
  std::vector<std::uint8_t> read_bytes(View view) const;

 private:
  void copy_in(View view, const std::function<void(View)>& fill) const;

  Device& device_;
};

/// Ways to cut a buffer of about `total` elements: even, uneven with empty slices, gaps and slices
/// out of rank order, and strided.
enum class Cut { even, uneven, strided };
struct Plan {
  std::int64_t buffer = 0;  ///< elements
  std::vector<Slices::Range> ranges;
};
Plan plan(Cut cut, std::int64_t total, int world);

/// Numbers whose fp32 sum depends on the order.
double wild(int rank, std::int64_t index);
double rounded(double value, DType dtype);

/// Throws zero::Error with the message unless `holds`.
void expect(bool holds, const std::string& what);

/// Every element is checked in small buffers, one in so many in large ones.
std::int64_t check_step(std::int64_t count);

void check_moves(const Rank& rank, std::int64_t total);   // all_gather, all_to_all, broadcast
void check_common(const Rank& rank, std::int64_t total);  // all_gather to common memory
void check_reduce_scatter(const Rank& rank, std::int64_t total);  // tree order, epilogue, aliasing
void check_buckets(const Rank& rank);                             // bits do not depend on them
void check_all_reduce(const Rank& rank, std::int64_t total);
void check_split(const Rank& rank);
void check_store(const Rank& rank);
void check_exchange(Communicator& communicator, Device& device);
void check_everything(Communicator& communicator, Device& device, std::int64_t total);

}  // namespace zero::test
