// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/small_gpt2.h"

#include <span>
#include <utility>

#include "architecture/family.h"
#include "collectives/backends.h"

namespace zero::bench {

SmallGpt2::SmallGpt2(std::unique_ptr<Device> device, const EngineOptions& options,
                     const Sizes& sizes)
    : communicator_(local::single()),
      device_(std::move(device)),
      engine_(*communicator_, *device_, options),
      model_(engine_,
             decoder_shape({{"family", "gpt2"},
                            {"layers", sizes.layers},
                            {"width", sizes.width},
                            {"heads", sizes.heads},
                            {"context", sizes.batch.sequence},
                            {"vocabulary", 256}}),
             sizes.batch),
      tokens_(static_cast<std::size_t>(sizes.batch.batch * sizes.batch.sequence), 1) {
  engine_.seal({.order = model_.order()});
  model_.allocate();
}

void SmallGpt2::train() {
  const View tokens = View::of(std::span(tokens_));
  model_.train(tokens, tokens, 1.0F / static_cast<float>(tokens_.size()),
               View::of(std::span(&loss_, 1)));
  device_->compute().synchronize();
}

StepReport SmallGpt2::step() {
  train();
  return engine_.step({.learning_rate = 1e-4});
}

}  // namespace zero::bench
