// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

struct GenerateFlags;

/// Prints a table of the formats of weights and of the cache: the bytes of all weights, those of a
/// token in the cache, tokens/s of one answer, and the perplexity of the text in the file
/// flags.compare. Returns the exit status. Throws zero::Error.
int compare_weights(const GenerateFlags& flags);

}  // namespace zero
