// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero {

/// A folder with a small file for each fault that has acted, so that the attempt after a restart
/// does not meet it again: "fault_2" is the third of run.faults, "drawn_5" the sixth drawn one. A
/// mark is on the disk before its fault acts; its time is the fault's. Without a folder nothing is
/// kept.
class FaultMarks {
 public:
  /// Makes the folder; empty: none. Throws zero::Error naming the key, the folder and the reason if
  /// it cannot be made.
  explicit FaultMarks(std::string folder);

  bool has(const std::string& name) const;
  /// The path of a mark's file.
  std::string path(const std::string& name) const;
  /// Leaves a mark that says `text`. Returns whether it was not there before. Throws zero::Error
  /// naming file and reason if it cannot be written: the fault would act again and again.
  bool leave(const std::string& name, const std::string& text) const;
  /// One more than the highest number of a mark named PREFIX_NUMBER; 0: there is none.
  std::int64_t next_number(const std::string& prefix) const;

 private:
  std::string folder_;
};

}  // namespace zero
