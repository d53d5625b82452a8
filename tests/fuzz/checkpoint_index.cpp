// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_index.h"

#include "tests/fuzz/fuzz.h"
#include "weights/file_blocks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::may_refuse([&] { check_commit("COMMIT", text, "index"); });
  return fuzz::may_refuse([&] {
    const CheckpointIndex index = parse_checkpoint_index("index.json", text);
    fuzz::expect(checkpoint_index_text(index) == text, "an index has one text");
    for (const CheckpointIndex::File& file : index.files) {
      const bool inside =
          (file.name.starts_with("weights/") || file.name.starts_with("moments/")) &&
          file.name.find('/', 8) == file.name.npos && !file.name.ends_with("/..");
      fuzz::expect(inside, "a file that an index names lies in its folder");
      fuzz::expect(std::ssize(file.crcs) == blocks_of(file.bytes), "each block has a checksum");
    }
    for (const CheckpointIndex::Tensor& tensor : index.tensors) {
      const CheckpointIndex::File& file = index.files.at(tensor.file);
      fuzz::expect(tensor.count() >= 0 && tensor.offset >= 0 &&
                       tensor.count() <= (file.bytes - tensor.offset) / 4,
                   "a tensor lies in its file");
    }
  });
}
