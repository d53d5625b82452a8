// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>

#include "model/gpt2.h"
#include "model/llama.h"
#include "model/model.h"

namespace zero {

/// The configuration of a model of any family; each family is one alternative.
using ModelConfig = std::variant<Gpt2Config, LlamaConfig>;

/// "gpt2", "llama".
std::string_view family_of(const ModelConfig& config);
std::int64_t vocabulary_of(const ModelConfig& config);
std::int64_t context_of(const ModelConfig& config);
std::int64_t layers_of(const ModelConfig& config);
/// The parts of its decoder. Throws zero::Error as validate() does.
DecoderShape decoder_shape(const ModelConfig& config);
/// Throws zero::Error naming the field that is out of range.
void validate(const ModelConfig& config);
/// The same, also if the model cannot be cut over that many tensor ranks.
void validate(const ModelConfig& config, int tensor_ranks);

/// Registers the units of a model with `engine`; call before engine.seal(). `engine` and
/// `listener`, which is notified of operations and units, must outlive the model. `tensor`: how the
/// ranks of the tensor axis of engine.mesh() work together. `recompute`: what backward computes
/// again.
std::unique_ptr<Model> make_model(Engine& engine, const ModelConfig& config, BatchShape shape,
                                  OpListener* listener = nullptr, const TensorOptions& tensor = {},
                                  const RecomputePlan& recompute = {});

}  // namespace zero
