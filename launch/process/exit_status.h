// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The statuses with which the programs end, for launchers, schedulers and launch/retry.sh.
/// docs/faults.md says what each of these does with them.
namespace zero::exit_status {

/// All that was asked for is done. Also of a rank that an elastic run has no use for.
inline constexpr int kOk = 0;

/// A fault, or an error of which nobody can say that it comes again: a lost rank, a disk that
/// fails, a loss that is not finite. Worth another try. It is 1 since launchers, whose own failures
/// are worth another try too, end with 1 for reasons of every kind.
inline constexpr int kFault = 1;

/// The same start fails again: the command line, the configuration, or what it names is wrong.
/// EX_CONFIG of sysexits.h: neither shells, launchers nor interpreters end with it, so that it is
/// certain, which 1 and 2 are not.
inline constexpr int kConfiguration = 78;

/// A program that answers a question (zero_ckpt, zero_plan, --plan): the answer is no.
inline constexpr int kNo = 1;

/// Such a program has no answer, as with diff and grep.
inline constexpr int kTrouble = 2;

/// Told to end by a signal, after the save that is due then (docs/checkpoints.md), or at once.
constexpr int after_signal(int signal) { return 128 + signal; }

}  // namespace zero::exit_status
