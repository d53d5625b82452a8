// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/check.h"

#include "base/error.h"

namespace zero::nccl {

std::string described(ncclResult_t result, ncclComm_t comm) {
  const char* const last = ncclGetLastError(comm);
  const std::string more = last == nullptr ? "" : last;
  return fmt::format("{}{}{}", ncclGetErrorString(result), more.empty() ? "" : ": ", more);
}

void check(ncclResult_t result, std::string_view what, ncclComm_t comm,
           std::source_location where) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string_view file = where.file_name();
  fail("{}: NCCL: {} (at {}:{}; NCCL_DEBUG=INFO tells more)", what, described(result, comm),
       file.substr(file.rfind('/') + 1), where.line());
}

GroupGuard::GroupGuard(std::string_view what) : what_(what) { check(ncclGroupStart(), what); }

void GroupGuard::end() {
  open_ = false;
  check(ncclGroupEnd(), what_);
}

GroupGuard::~GroupGuard() {
  if (open_) ncclGroupEnd();
}

}  // namespace zero::nccl
