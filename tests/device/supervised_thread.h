// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "tests/errors.h"

namespace zero::testing {

/// A system call of a supervised thread.
struct SystemCall {
  long number;
  std::array<std::uint64_t, 6> arguments;  ///< numbers, or addresses in this process

  /// Makes the call on the calling thread; the result, or the negative error number.
  long run() const {
    const auto& [a, b, c, d, e, f] = arguments;
    const long result = ::syscall(number, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
  }
};

/// Stands in for the system: its result is the call's, or the negative error number, or
/// kCallerCalls.
using SystemAnswer = std::function<long(const SystemCall& call)>;

/// The thread that asked makes the call itself, as for one that concerns threads it must.
inline constexpr long kCallerCalls = std::numeric_limits<long>::min();

/// The system, except that the first `count` calls do nothing and end with `error`.
inline SystemAnswer first_calls_end_with(int error, int count = 1) {
  return [error, left = count](const SystemCall& call) mutable {
    return left-- > 0 ? -error : call.run();
  };
}

/// Gives the calling thread's calls of these numbers, and those of the threads it starts, to the
/// holder of the result; -1 if the system cannot.
inline int supervise(const std::vector<long>& numbers) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long number : numbers) {
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

/// Stores `value` into memory of the supervised thread, as the kernel does in a system call. That
/// thread waits meanwhile, which ThreadSanitizer does not see.
template <typename T>
__attribute__((no_sanitize_thread)) void store_for_caller(T& out, T value) {
  out = value;
}

/// Reads such memory.
template <typename T>
__attribute__((no_sanitize_thread)) T load_of_caller(const T& value) {
  return value;
}

/// Answers one call, if any comes within some milliseconds.
inline void answer_one(int listener, const SystemAnswer& answer) {
  pollfd arrived{.fd = listener, .events = POLLIN, .revents = 0};
  if (::poll(&arrived, 1, 5) <= 0 || (arrived.revents & POLLIN) == 0) return;
  seccomp_notif asked{};
  if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) return;
  SystemCall call{.number = asked.data.nr, .arguments = {}};
  for (std::size_t i = 0; i < call.arguments.size(); ++i) call.arguments[i] = asked.data.args[i];
  const long result = answer(call);
  seccomp_notif_resp response{};
  response.id = asked.id;
  if (result == kCallerCalls) response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  if (result < 0 && result != kCallerCalls) response.error = static_cast<std::int32_t>(result);
  if (result >= 0) response.val = result;
  ::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

/// Result of on_supervised_thread() where the system has no supervision.
inline constexpr const char* kNoSupervision = "the system lets no thread answer another's calls";

/// Runs `body` on a thread of its own, with the calling thread's `answer` to system calls of these
/// numbers; returns the message of the zero::Error that `body` ends with, or "no error".
inline std::string on_supervised_thread(const std::vector<long>& numbers,
                                        const SystemAnswer& answer,
                                        const std::function<void()>& body) {
  std::promise<int> supervised;
  std::atomic<bool> ended = false;
  std::string message = kNoSupervision;
  std::thread thread([&] {
    const int listener = supervise(numbers);
    supervised.set_value(listener);
    if (listener >= 0) message = error_of(body);
    ended = true;
  });
  const Descriptor listener(supervised.get_future().get());
  while (!ended) answer_one(listener.get(), answer);
  thread.join();
  return message;
}
inline std::string on_supervised_thread(long number, const SystemAnswer& answer,
                                        const std::function<void()>& body) {
  return on_supervised_thread(std::vector{number}, answer, body);
}

}  // namespace zero::testing
