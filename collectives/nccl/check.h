// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <source_location>
#include <string_view>

namespace zero::nccl {

/// Throws zero::Error unless `result` is success, or says that the call goes on in the background:
/// what the call was for, NCCL's own words and the call site. `comm` may be null.
void check(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr,
           std::source_location where = std::source_location::current());

/// "unhandled system error: NET/Socket: ...": the result in words, with the last of what NCCL said.
std::string described(ncclResult_t result, ncclComm_t comm);

/// Calls between its making and end() are one operation of the library; where end() is not reached,
/// the group is closed without a word.
class GroupGuard {
 public:
  explicit GroupGuard(std::string_view what);
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  void end();

 private:
  std::string_view what_;
  bool open_ = true;
};

}  // namespace zero::nccl
