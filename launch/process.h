// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <thread>

namespace zero {

/// Waits for SIGINT and SIGTERM on a thread of its own, runs `on_signal` there and ends the process
/// at once with 128 + the signal's number: whatever the other threads wait for, all ranks end. Make
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
/// before main starts, so where nobody has chosen, this sets it and starts the program anew.
/// Returns where nothing is to be done.
void make_waiting_threads_sleep(char** argv);

/// Versions of the program, of every backend and of the libraries that compute, each with the
/// reason where this build has none, and the vector instructions it uses here and what limits them:
/// what ranks have alike.
std::string libraries_text();
/// The same, and the driver's, which ranks may have of several versions.
std::string version_text();

}  // namespace zero
