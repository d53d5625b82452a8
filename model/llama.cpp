// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/llama.h"

namespace zero {

Llama::Llama(Engine& engine, const LlamaConfig& config, BatchShape shape, OpListener* listener,
             const TensorOptions& tensor, const RecomputePlan& recompute)
    : Decoder(engine, decoder_shape(config), shape, listener, tensor, recompute) {}

}  // namespace zero
