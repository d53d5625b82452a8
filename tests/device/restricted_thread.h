// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "tests/errors.h"

namespace zero::testing {

/// What the system refuses to a thread, and to the threads that it starts.
struct Refusal {
  long call;           ///< the number of the system call
  int error;           ///< EPERM, ENOSYS, ...
  unsigned argument;   ///< the index of the argument that decides
  std::uint32_t bits;  ///< refused if the argument has one of these; 0: always
};

inline bool refuse(const Refusal& refusal) {
  const auto argument =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * refusal.argument);
  const auto error = static_cast<std::uint32_t>(refusal.error);
  const std::uint16_t jump =
      refusal.bits == 0 ? BPF_JMP | BPF_JGE | BPF_K : BPF_JMP | BPF_JSET | BPF_K;
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.call), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
      BPF_JUMP(jump, refusal.bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Makes the calling thread, and no other, one of the user "nobody" if it is root's.
inline bool give_up_root() {
  constexpr int kNobody = 65534;
  return ::geteuid() != 0 || ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) == 0;
}

/// Gives the calling thread, and no other, an empty disk of `bytes` at the folder `path`, which
/// ends with the thread; false if the system refuses.
inline bool mount_small_disk(const std::string& path, std::int64_t bytes) {
  const std::string options = "size=" + std::to_string(bytes);
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

/// Runs `body` on a thread of its own, which may restrict itself; returns the message of the
/// zero::Error that `body` ends with, or "no error".
inline std::string on_own_thread(const std::function<void()>& body) {
  std::string message;
  std::thread([&] { message = error_of(body); }).join();
  return message;
}

}  // namespace zero::testing
