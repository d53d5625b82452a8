// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

// A source of its own: what reads configurations alone links no model.
namespace zero {

std::unique_ptr<Model> make_model(Engine& engine, const ModelConfig& config, BatchShape shape,
                                  OpListener* listener, const TensorOptions& tensor,
                                  const RecomputePlan& recompute) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) {
    return std::make_unique<Gpt2>(engine, *gpt2, shape, listener, tensor, recompute);
  }
  return std::make_unique<Llama>(engine, std::get<LlamaConfig>(config), shape, listener, tensor,
                                 recompute);
}

}  // namespace zero
