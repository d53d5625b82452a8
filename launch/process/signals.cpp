// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "launch/process/exit_status.h"

namespace zero {
namespace {

/// A launcher, or timeout(1), may send one process the same signal twice at once.
constexpr std::chrono::milliseconds kOneSignal{200};

constexpr const char* kSaving = "SIGUSR1: saving a checkpoint after this step";
constexpr const char* kEndsAtOnce = "from now on SIGINT (Ctrl-C) ends at once";
constexpr const char* kRefused = "SIGUSR1: no run.checkpoint.folder; nothing is saved";

const char* name_of(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

/// As whoever started this process may ask: nohup for SIGHUP, a shell for SIGINT with `&` in
/// scripts.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Without ignored ones: a thread that waits for a signal would hear of it all the same.
sigset_t watched_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  // A terminal that is gone (SIGHUP) asks for an end too.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    if (!is_ignored(signal)) ::sigaddset(&signals, signal);
  }
  // Also wakes the watcher's thread for its end.
  ::sigaddset(&signals, SIGUSR2);
  return signals;
}

}  // namespace

Signals::Answer Signals::arrived(int signal, Time now) {
  const std::scoped_lock lock(mutex_);
  if (signal == SIGUSR1) {
    if (state_ == State::refusing) return {.line = kRefused};
    if (state_ == State::ended) return {.line = "SIGUSR1: the last step is done; nothing is saved"};
    ++asked_.saves;
    asked_.last_save = now;
    return {.line = state_ == State::listening ? kSaving : ""};
  }
  if (state_ != State::listening) return {.ends_process = true};
  if (asked_.ending == 0) {
    asked_.ending = signal;
    ending_since_ = now;
    const bool killed = signal == SIGTERM && !launcher_kills_.empty();
    return {.line = fmt::format("{}: saving a checkpoint after this step, then ending; {}{}{}",
                                name_of(signal), kEndsAtOnce, killed ? "; " : "",
                                killed ? launcher_kills_ : "")};
  }
  if (now - ending_since_ < kOneSignal) return {};
  // Only people send SIGINT twice. A SIGTERM behind another signal is a scheduler's, which kills
  // the process when it thinks fit, or the same one, passed on by each program around this one.
  if (signal == SIGINT) return {.ends_process = true};
  return {.line = fmt::format("{} again: the save goes on; {}", name_of(signal), kEndsAtOnce)};
}

std::string Signals::listen() {
  const std::scoped_lock lock(mutex_);
  state_ = State::listening;
  return asked_.saves > 0 ? kSaving : "";
}

std::string Signals::refuse() {
  const std::scoped_lock lock(mutex_);
  state_ = State::refusing;
  return asked_.saves > 0 ? kRefused : "";
}

Signals::Asked Signals::asked() const {
  const std::scoped_lock lock(mutex_);
  return asked_;
}

int Signals::stop_listening() {
  const std::scoped_lock lock(mutex_);
  state_ = State::ended;
  return asked_.ending;
}

std::string mpirun_kills(const Environment& environment) {
  const bool by_mpirun = environment && environment("OMPI_COMM_WORLD_SIZE").has_value();
  // mpirun puts what it was told by --mca into the environment of its ranks.
  if (!by_mpirun || environment("OMPI_MCA_odls_base_sigkill_timeout")) return "";
  return "mpirun, if it was told to end, kills this run within seconds (--mca "
         "odls_base_sigkill_timeout 60 for more)";
}

SignalWatcher::SignalWatcher(std::function<AfterSignal(int)> on_signal) {
  const sigset_t signals = watched_signals();
  const bool ends_on_usr2 = !is_ignored(SIGUSR2);
  // Threads inherit the mask, so only the watcher receives the signals.
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this, signals, ends_on_usr2, act = std::move(on_signal)] {
    for (int signal = 0; !ending_;) {
      if (::sigwait(&signals, &signal) != 0 || ending_) continue;
      if (signal == SIGUSR2 && !ends_on_usr2) continue;
      if (signal == SIGUSR2 || signal == SIGHUP) signal = SIGTERM;
      if (act(signal) == AfterSignal::end) ::_exit(exit_status::after_signal(signal));
    }
  });
}

SignalWatcher::~SignalWatcher() {
  ending_ = true;
  ::pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void hold_save_requests() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace zero
