// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/token_digest.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const fuzz::MemoryFile file(fuzz::text_of(data, size));
    const auto digest = read_digest(file.path());
    fuzz::expect(digest && digest_bytes(*digest) == fuzz::text_of(data, size),
                 "a digest that was read is written as it was");
  });
}
