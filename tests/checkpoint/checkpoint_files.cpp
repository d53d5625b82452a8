// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "weights/file_blocks.h"

namespace zero::testing {

std::vector<LogicalTensor> logical_tensors(const std::vector<NamedShape>& parameters) {
  std::vector<LogicalTensor> tensors;
  for (const StateKind kind : kStateKinds) {
    for (const NamedShape& parameter : parameters) {
      LogicalTensor& tensor = tensors.emplace_back();
      tensor.name = parameter.name;
      tensor.shape = parameter.shape;
      tensor.kind = kind;
    }
  }
  return tensors;
}

CheckpointLayout small_layout() {
  const auto tensors = logical_tensors(
      {{"h.0.weight", {3, 4}}, {"h.0.bias", {4}}, {"embedding", {5, 3}}, {"scale", {}}});
  return lay_out_checkpoint(
      tensors, names::plain(),
      {.file_bytes = 80,
       .weight_files = {{"config.json", "{\"a\": 1}\n"}, {"tokenizer.model", ""}}});
}

CheckpointLayout large_layout() {
  const auto tensors = logical_tensors({{"h.0.weight", {300, 1000}},
                                        {"h.0.bias", {1000}},
                                        {"h.1.weight", {20, 1000}},
                                        {"h.1.none", {0, 7}},
                                        {"embedding", {100003}}});
  return lay_out_checkpoint(tensors, names::plain(),
                            {.file_bytes = 1300000,
                             .weight_files = {{"config.json", "{\"a\": 1}\n"},
                                              {"tokenizer.model", std::string(5000, 't')}}});
}

float value_of(std::uint32_t seed, const LayoutTensor& tensor, std::int64_t element) {
  const auto place = static_cast<std::uint32_t>(element) * 97U +
                     static_cast<std::uint32_t>(tensor.source) * 7919U +
                     static_cast<std::uint32_t>(tensor.kind) * 104729U;
  return 1.0F + static_cast<float>((place + seed * 31337U) % 1000003U);
}

std::vector<std::byte> block_bytes(const CheckpointLayout& layout, const Block& block,
                                   std::uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(block.bytes));
  const std::string_view head = layout.head_of(block);
  if (!head.empty()) std::memcpy(bytes.data(), head.data(), head.size());
  layout.for_each_piece(block, [&](const BlockPiece& piece) {
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const float value = value_of(seed, layout.tensors()[piece.tensor], piece.source_begin + i);
      std::memcpy(bytes.data() + piece.offset + i * std::int64_t{sizeof(float)}, &value,
                  sizeof(float));
    }
  });
  return bytes;
}

CheckpointIndex write_checkpoint(files::FileSystem& files, const std::string& folder,
                                 std::int64_t step, const CheckpointLayout& layout,
                                 std::uint32_t seed) {
  std::vector<std::uint32_t> crcs;
  std::unique_ptr<files::OutputFile> file;
  for (std::int64_t number = 0; number < layout.blocks().count(); ++number) {
    const Block block = layout.blocks().at(number);
    const std::vector<std::byte> bytes = block_bytes(layout, block, seed);
    const std::string path = partial_path(folder, step) + "/" + layout.files()[block.file].name;
    if (!file || file->path() != path) file = files.open_write(path);
    file->write(block.begin, bytes);
    crcs.push_back(crc32c(bytes));
  }
  return index_of(layout, step, crcs, {{"seed", seed}, {"loss", 0.25}});
}

RemovalNotes save_checkpoint(files::FileSystem& files, const std::string& folder, std::int64_t step,
                             const CheckpointLayout& layout, std::uint32_t seed) {
  RemovalNotes notes = begin_checkpoint(files, folder, step, layout, kOwner);
  for (std::string& note : commit_checkpoint(
           files, folder, write_checkpoint(files, folder, step, layout, seed), kOwner))
    notes.push_back(std::move(note));
  return notes;
}

}  // namespace zero::testing
