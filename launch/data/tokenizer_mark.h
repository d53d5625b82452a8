// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/data/token_digest.h"
#include "text/tokenizer.h"

namespace zero {

/// What tells a tokenizer from others: a hash of all its ids' pieces and special tokens. Files of
/// different forms have one mark if each id means the same in them.
TokenizerMark mark_of(const Tokenizer& tokenizer);

}  // namespace zero
