// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

struct GenerateFlags;

/// Answers all prompts, or those of standard input if there is none, on standard output, as the
/// rank or ranks of this process. Errors of single prompts and a line about the speed go to
/// standard error. Returns the exit status: 0; 1 if a prompt was refused or an answer failed; 128 +
/// the signal if SIGINT or SIGTERM cut it short. Throws zero::Error if nothing can be answered; a
/// rank of several that fails ends all. Call once in a process, before it has threads.
int generate(const GenerateFlags& flags, int* argc, char*** argv);

}  // namespace zero
