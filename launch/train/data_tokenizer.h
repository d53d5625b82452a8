// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/config/train_config.h"
#include "launch/data/batches.h"

namespace zero {

/// Holds the tokenizer that the digests of the data's files name against data.tokenizer, or, if
/// that is not given, that of the folder model.hf. Throws zero::Error naming file and key if they
/// differ. Does nothing for files whose digest names none, and for tokenizers that are not
/// computed.
void check_data_tokenizer(const TrainConfig& config, const Batches& batches);

}  // namespace zero
