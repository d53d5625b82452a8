// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

namespace zero {
namespace {

sigset_t ending_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  // Sent by the watcher's end to its own thread.
  ::sigaddset(&signals, SIGUSR2);
  return signals;
}

}  // namespace

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal) {
  const sigset_t signals = ending_signals();
  // Threads inherit the mask: the signals reach the watcher alone.
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([signals, act = std::move(on_signal)] {
    int signal = 0;
    while (::sigwait(&signals, &signal) != 0) {
    }
    if (signal == SIGUSR2) return;
    act(signal);
    ::_exit(128 + signal);
  });
}

SignalWatcher::~SignalWatcher() {
  ::pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void make_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
  // Where the program cannot be started anew it runs on as it is, only slower.
}

}  // namespace zero
