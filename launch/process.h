// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <thread>

#include "launch/rendezvous/start.h"

namespace zero {

/// Waits for SIGINT and SIGTERM on a thread of its own, runs `on_signal` there and ends the process
/// at once with 128 + the signal's number, even if other threads are blocked. Make
/// it before any other thread.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int)> on_signal);
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;
  ~SignalWatcher();

 private:
  std::thread thread_;
};

/// Makes OpenMP's waiting threads sleep, for programs whose ranks x threads exceed the cores:
/// threads that wait must not hold cores that other ranks need. OpenMP reads how its threads wait
/// before main starts, so if the user has not chosen, this sets it and starts the program anew.
/// Returns if nothing is to be done.
void make_waiting_threads_sleep(char** argv);

/// Versions of the program, of every backend and of the libraries that compute, each with the
/// reason if this build has none, and the vector instructions it uses here and what limits them:
/// what ranks have alike.
std::string libraries_text();
/// The same, and the driver's, which ranks may have of several versions.
std::string version_text();

/// Makes this process compute as if its processor had no instructions beyond ZERO_MAX_CPU_ISA:
/// AVX2, AVX512, AVX512_BF16 or AMX. Holds for all kernels and only lowers. To be called before any
/// kernel runs; without the variable nothing happens. Throws zero::Error for other values.
void limit_cpu(const Environment& environment);

/// For --help.
inline constexpr const char* kCpuLimitHelp =
    "ZERO_MAX_CPU_ISA in the environment, one of AVX2, AVX512, AVX512_BF16, AMX: compute as if the "
    "processor had no instructions beyond it.";
/// For a line of --version: " (ZERO_MAX_CPU_ISA=AVX2)", empty without the variable.
std::string cpu_limit_text(const Environment& environment);

}  // namespace zero
