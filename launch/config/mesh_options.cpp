// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

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
      {.path = "mesh.check_every",
       .type = integer,
       .fallback = "100",
       .help = "steps between two comparisons of what several ranks hold and must have alike, by "
               "hashes; the end of a run makes one too; 0: never",
       .low = 0,
       .high = 1e9},
      {.path = "mesh.sequence_parallel",
       .type = boolean,
       .fallback = "false",
       .help = "cut residual stream and norms over the tensor ranks too, by rows"},
      {.path = "mesh.chunks",
       .type = integer,
       .fallback = "2",
       .help = "parts in which a product and what tensor ranks exchange of it overlap, at most",
       .low = 1,
       .high = 1024},
  };
}

}  // namespace zero
