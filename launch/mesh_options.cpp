// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/option.h"

namespace zero {

std::vector<Option> mesh_options() {
  using enum ValueType;
  const auto axis = [](std::string_view name, std::string fallback, std::string help) {
    return Option{.path = "mesh." + std::string(name),
                  .type = integer,
                  .fallback = std::move(fallback),
                  .help = std::move(help),
                  .low = -1,
                  .high = 1e6};
  };
  return {
      axis("replicate", "1", "groups of ranks that each hold the whole model states (HSDP)"),
      axis("shard", "-1", "ranks that share one copy of the model states; -1: what is left"),
      axis("tensor", "1", "ranks that compute a part of each layer together; adjacent ranks"),
  };
}

}  // namespace zero
