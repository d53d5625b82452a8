// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <source_location>
#include <string_view>

namespace zero::nccl {

/// Throws zero::Error with `what` (the purpose of the call), NCCL's message and the call site,
/// unless `result` is success or says that the call goes on in the background. `comm` may be null.
void check(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr,
           std::source_location where = std::source_location::current());

/// "unhandled system error: NET/Socket: ...": the result in words, with NCCL's last message.
std::string described(ncclResult_t result, ncclComm_t comm);

/// Calls between construction and end() are one NCCL group; if end() is not reached, the destructor
/// closes the group and ignores errors.
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
