// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "weights/hf/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    for (const std::string& name : files_of_index("index.json", fuzz::text_of(data, size))) {
      const bool inside = !name.empty() && name != ".." && name.find('/') == name.npos &&
                          name.find('\0') == name.npos;
      fuzz::expect(inside, "a file that an index names lies in its folder");
    }
  });
}
