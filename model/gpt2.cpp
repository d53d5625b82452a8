// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/gpt2.h"

namespace zero {

Gpt2::Gpt2(Engine& engine, const Gpt2Config& config, BatchShape shape, OpListener* listener,
           const TensorOptions& tensor, const RecomputePlan& recompute)
    : Decoder(engine, decoder_shape(config), shape, listener, tensor, recompute) {}

}  // namespace zero
