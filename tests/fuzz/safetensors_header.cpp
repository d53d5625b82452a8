// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weights/hf/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const fuzz::MemoryFile file(fuzz::text_of(data, size));
    const SafetensorsReader reader(file.path());
    std::int64_t bytes = reader.header().data_begin;
    for (const FileTensor& tensor : reader.header().tensors) {
      std::vector<std::byte> values(static_cast<std::size_t>(tensor.end - tensor.begin));
      reader.read(tensor, 0, values);
      bytes += std::ssize(values);
      fuzz::expect(reader.find(tensor.name) == &tensor, "a tensor is found by its name");
    }
    fuzz::expect(bytes == static_cast<std::int64_t>(size), "header and tensors are all of a file");
  });
}
