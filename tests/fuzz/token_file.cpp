// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_file.h"

#include <algorithm>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const fuzz::MemoryFile file(fuzz::text_of(data, size));
    const TokenFile tokens(file.path());
    tokens.fingerprint();
    for (const std::int64_t vocabulary : {1, 256, 70000})
      tokens.find_outside(0, tokens.count(), vocabulary);
    const TokenStream stream({file.path(), file.path()});
    std::vector<std::int32_t> inputs(5);
    std::vector<std::int32_t> targets(inputs.size());
    for (std::int64_t q = 0; q < std::min<std::int64_t>(stream.sequences(5), 100); ++q)
      stream.sequence(q, 1 << 20, inputs, targets);
    stream.check_tokens(0, stream.count(), 1 << 20);
  });
}
