// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/config/train_config.h"
#include "launch/data/batches.h"

namespace zero {

/// Holds the tokenizer that the digests of the data's files name against saved_tokenizer(). Throws
/// zero::Error naming file and key if they differ, or if data.tokenizer cannot be read. Does
/// nothing for files whose digest names none, and for a model's tokenizer that is not computed.
void check_data_tokenizer(const TrainConfig& config, const Batches& batches);

}  // namespace zero
