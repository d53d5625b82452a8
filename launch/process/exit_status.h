// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The statuses with which programs end, for launchers, schedulers and launch/retry.sh;
/// docs/faults.md has what each of these does with them.
namespace zero::exit_status {

/// What was asked for is done. Also of a rank that takes no part in an elastic run.
inline constexpr int kOk = 0;

// Of a job, which launchers start again: zero_train.

/// A fault, or an error that need not come again: a lost rank, a disk that fails, a loss that is
/// not finite. Worth another try. Launchers end with 1 for whatever goes wrong in themselves, which
/// is worth another try too.
inline constexpr int kFault = 1;

/// The same start fails again: the command line, the launcher's variables or the configuration are
/// wrong, or the newest checkpoint is another run's. EX_CONFIG of sysexits.h: no shell, launcher or
/// interpreter ends with 78 for reasons of its own, as they do with 1, 2, and 125 to 127.
inline constexpr int kConfiguration = 78;

/// Told to end by a signal: behind the save that is due then (docs/checkpoints.md), or at once.
constexpr int after_signal(int signal) { return 128 + signal; }

// Of a program that answers a question, as diff and grep do: zero_ckpt, zero_doctor, zero_plan,
// --plan.

/// The answer is no: a checkpoint is damaged, two differ, a run has met a fault, nothing fits.
inline constexpr int kNo = 1;

/// There is no answer.
inline constexpr int kTrouble = 2;

}  // namespace zero::exit_status
