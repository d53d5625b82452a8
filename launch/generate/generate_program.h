// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

namespace files {
class FileSystem;
}
struct GenerateFlags;

/// Answers all prompts, or those of standard input if there is none, on standard output, as the
/// rank or ranks of this process. Errors of single prompts and a line about the speed go to
/// standard error. Returns the exit status: 0; 1 if a prompt was refused or an answer failed; 128 +
/// the signal if SIGINT or SIGTERM cut it short. Throws zero::Error if nothing can be answered; a
/// rank of several that fails ends all. Call once in a process, before it has threads.
int generate(const GenerateFlags& flags, int* argc, char*** argv);

/// Prints a table of the formats of weights and of the cache: the bytes of all weights, those of a
/// token in the cache, tokens/s of one answer, and the perplexity of the text in the file
/// flags.compare. Returns the exit status. Throws zero::Error.
int compare_weights(const GenerateFlags& flags);

/// Writes the model's folder once more as flags.save_quantized, with its matrices in codes of
/// flags.weights: config.json, tokenizer and weights. The folder has its name once it is whole and
/// on the disk. Prints its size; returns the exit status. Throws zero::Error; nothing is then left,
/// unless the last step failed, which syncs the name of the whole folder.
int save_quantized(const GenerateFlags& flags, files::FileSystem& disk);

}  // namespace zero
