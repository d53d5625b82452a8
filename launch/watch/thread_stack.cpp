// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/thread_stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/core/demangle.hpp>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>
#include <thread>

namespace zero {
namespace {

constexpr int kMostFrames = 48;
constexpr int kOwnFrames = 2;  // the handler, and the system's call of it
constexpr std::chrono::milliseconds kForStack{200};
constexpr const char* kNoStack =
    "(no answer in 0.2 s: the thread has ended, waits for a core, or is blocked in the kernel or "
    "the loader)\n";

// A handler reaches nothing but what is static. One stack is taken at a time.
std::mutex stack_mutex;
int stack_signal = 0;                // 0: not prepared
std::atomic<pid_t> stack_thread{0};  // the thread that is to answer; 0: none
std::atomic<int> stack_depth{0};     // 0: not yet
std::array<void*, kMostFrames> stack_frames{};
bool stack_blocked = false;  // a handler has not come back, and may still write the frames

void store_frames(int /*signal*/) {
  const int error = errno;
  pid_t self = ::gettid();
  // A thread that answers too late is no longer wanted.
  if (stack_thread.compare_exchange_strong(self, 0)) {
    const int count = ::backtrace(stack_frames.data(), kMostFrames);
    stack_depth.store(count > 0 ? count : 1, std::memory_order_release);
  }
  errno = error;
}

int free_signal() {
  for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) return signal;
  }
  return 0;
}

/// For the calling thread and those that it makes: a launcher may have blocked all signals.
bool unblock(int signal) {
  sigset_t one{};
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  return ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr) == 0;
}

/// "zero::WorkerStream::run()", or "libmpi.so.40+0x1234" where symbols have no names.
std::string frame_text(void* address) {
  Dl_info found{};
  if (::dladdr(address, &found) == 0) return fmt::format("{}", address);
  if (found.dli_sname != nullptr) return boost::core::demangle(found.dli_sname);
  const std::string_view path = found.dli_fname == nullptr ? "?" : found.dli_fname;
  return fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1),
                     static_cast<std::byte*>(address) - static_cast<std::byte*>(found.dli_fbase));
}

}  // namespace

bool prepare_stacks() {
  const std::scoped_lock lock(stack_mutex);
  if (stack_signal != 0) return unblock(stack_signal);
  ::backtrace(stack_frames.data(), kMostFrames);  // loads the unwinder
  const int signal = free_signal();
  struct sigaction action {};
  action.sa_handler = store_frames;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (signal == 0 || ::sigaction(signal, &action, nullptr) != 0) return false;
  stack_signal = signal;
  return unblock(signal);
}

std::optional<std::string> stack_of(pid_t thread, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const std::scoped_lock lock(stack_mutex);
  if (stack_signal == 0 || thread == ::gettid()) return std::nullopt;
  if (stack_blocked && stack_depth.load(std::memory_order_acquire) == 0) return std::nullopt;
  stack_blocked = false;
  stack_depth = 0;
  stack_thread = thread;
  const Clock::time_point end = Clock::now() + patience;
  bool sent = ::tgkill(::getpid(), thread, stack_signal) == 0;
  while (sent && stack_depth.load(std::memory_order_acquire) == 0) {
    const Clock::time_point now = Clock::now();
    if (now >= end && stack_thread.exchange(0) != 0) sent = false;
    // The unwinder may wait as well: for the loader's lock (glibc before 2.35), which a thread that
    // hangs in dlopen() holds, or for pages of a library on a file server that does not answer.
    if (now >= end + patience) {
      stack_blocked = sent;
      sent = false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stack_thread = 0;
  const int count = stack_depth.load(std::memory_order_acquire);
  if (!sent || count <= kOwnFrames) return std::nullopt;
  std::string text;
  for (void* const address :
       std::span(stack_frames).subspan(kOwnFrames, static_cast<std::size_t>(count - kOwnFrames))) {
    text += frame_text(address) + "\n";
  }
  return text;
}

void NamedThreads::add(std::string name, pid_t thread) {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find(threads_, thread, &std::pair<std::string, pid_t>::second);
  if (known != threads_.end()) {
    known->first += " and " + name;
  } else {
    threads_.emplace_back(std::move(name), thread);
  }
}

std::string NamedThreads::stacks() const {
  const std::scoped_lock lock(mutex_);
  std::string text;
  for (const auto& [name, thread] : threads_) {
    text += fmt::format("{}:\n{}", name, stack_of(thread, kForStack).value_or(kNoStack));
  }
  return text;
}

}  // namespace zero
