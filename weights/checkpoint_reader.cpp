// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "weights/checkpoint_name.h"
#include "weights/file_blocks.h"
#include "weights/hf/file_header.h"
#include "weights/text_file.h"

namespace zero {
namespace {

constexpr std::int64_t kLargestCommit = 1000;

CheckpointIndex read_index(files::FileSystem& files, const std::string& folder) {
  const std::string commit = folder + "/COMMIT";
  const std::string path = folder + "/index.json";
  const files::PathKind kind = files.kind_of(folder);
  damage_of([&] {
    ZERO_CHECK(kind == files::PathKind::folder, "{}: is no folder; expected a checkpoint", folder);
  });
  for (const std::string& each : {commit, path}) {
    const bool there = files.kind_of(each) != files::PathKind::missing;
    damage_of(
        [&] { ZERO_CHECK(there, "{}: is missing; expected it in a committed checkpoint", each); });
  }
  const std::string text = read_text(files, path, kLargestIndex);
  const std::string line = read_text(files, commit, kLargestCommit);
  return damage_of([&] {
    check_commit(commit, line, text);
    CheckpointIndex index = parse_checkpoint_index(path, text);
    const std::optional<CheckpointName> name = parse_checkpoint_name(name_of_path(folder));
    ZERO_CHECK(!name || name->step == index.step,
               "{}: step: found {}, expected {} as the folder is called", path, index.step,
               name->step);
    return index;
  });
}

/// A file whose failures to read are kept, so that they are told from what the bytes mean.
class WatchedFile final : public files::InputFile {
 public:
  explicit WatchedFile(files::InputFile& inner) : inner_(inner) {}
  const std::string& path() const override { return inner_.path(); }
  std::int64_t size() const override { return inner_.size(); }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    failed_ = true;
    inner_.read(offset, out);
    failed_ = false;
  }
  bool failed() const { return failed_; }

 private:
  files::InputFile& inner_;
  bool failed_ = false;
};

FileHeader header_of(files::InputFile& input) {
  WatchedFile watched(input);
  try {
    return read_header(watched);
  } catch (const Error& error) {
    if (watched.failed()) throw;
    throw DamagedCheckpoint(error.what());
  }
}

FileBlocks blocks_of_files(const CheckpointIndex& index) {
  std::vector<std::int64_t> sizes;
  for (const CheckpointIndex::File& file : index.files) sizes.push_back(file.bytes);
  return FileBlocks(sizes);
}

/// The tensors with elements in `block`.
std::vector<const CheckpointIndex::Tensor*> tensors_in(const CheckpointIndex& index,
                                                       const Block& block) {
  auto tensor = first_behind(index.tensors, block.file, block.begin);
  const std::pair end(block.file, block.begin + block.bytes);
  std::vector<const CheckpointIndex::Tensor*> result;
  for (; tensor != index.tensors.end() && std::pair(tensor->file, tensor->offset) < end; ++tensor) {
    if (tensor->count() > 0) result.push_back(&*tensor);
  }
  return result;
}

std::string text_of(const CheckpointIndex::Tensor& tensor) {
  return fmt::format("\"{}\" {} at offset {}", tensor.name, shape_text(tensor.shape),
                     tensor.offset);
}

}  // namespace

CheckpointReader::CheckpointReader(files::FileSystem& files, std::string folder,
                                   std::string_view start)
    : files_(files),
      folder_(std::move(folder)),
      index_(read_index(files, folder_)),
      blocks_(blocks_of_files(index_)) {
  for (std::size_t i = 0; i < index_.files.size(); ++i) {
    if (index_.files[i].name.starts_with(start)) check_file(i);
  }
}

std::string CheckpointReader::path_of(std::size_t file) const {
  return fmt::format("{}/{}", folder_, index_.files.at(file).name);
}

void CheckpointReader::check_file(std::size_t file) const {
  const CheckpointIndex::File& expected = index_.files[file];
  const std::string path = path_of(file);
  const files::PathKind kind = files_.kind_of(path);
  damage_of([&] {
    ZERO_CHECK(kind != files::PathKind::missing,
               "{}: is missing; index.json lists it with {} bytes", path, expected.bytes);
    ZERO_CHECK(kind == files::PathKind::file, "{}: is not a regular file", path);
  });
  const auto input = open(file);
  damage_of([&] {
    ZERO_CHECK(input->size() == expected.bytes, "{}: has {} bytes, expected {} by index.json", path,
               input->size(), expected.bytes);
  });
  if (expected.name.ends_with(".safetensors")) check_header(file, path, *input);
}

void CheckpointReader::check_header(std::size_t file, const std::string& path,
                                    files::InputFile& input) const {
  const FileHeader header = header_of(input);
  std::vector<CheckpointIndex::Tensor> found;
  for (const FileTensor& tensor : header.tensors) {
    damage_of([&] {
      ZERO_CHECK(tensor.type == FileType::f32, "{}: tensor \"{}\": found dtype {}, expected F32",
                 path, tensor.name, name_of(tensor.type));
    });
    found.push_back(
        {tensor.name, tensor.shape, StateKind::parameter, file, header.data_begin + tensor.begin});
  }
  const auto listed =
      std::ranges::equal_range(index_.tensors, file, {}, &CheckpointIndex::Tensor::file);
  const auto same = [](const CheckpointIndex::Tensor& a, const CheckpointIndex::Tensor& b) {
    return std::tie(a.name, a.shape, a.offset) == std::tie(b.name, b.shape, b.offset);
  };
  const auto [in_file, in_index] =
      std::mismatch(found.begin(), found.end(), listed.begin(), listed.end(), same);
  if (in_file == found.end() && in_index == listed.end()) return;
  throw DamagedCheckpoint(
      fmt::format("{}: the header has {}, expected {} by index.json", path,
                  in_file == found.end() ? "no further tensor" : "tensor " + text_of(*in_file),
                  in_index == listed.end() ? "no further tensor" : "tensor " + text_of(*in_index)));
}

std::unique_ptr<files::InputFile> CheckpointReader::open(std::size_t file) const {
  return files_.open_read(path_of(file));
}

void CheckpointReader::check_block(std::int64_t number, std::span<const std::byte> bytes) const {
  const Block block = blocks_.at(number);
  ZERO_CHECK(std::ssize(bytes) == block.bytes, "block {} has {} bytes, {} were given", number,
             block.bytes, bytes.size());
  const std::uint32_t expected =
      index_.files[block.file].crcs[static_cast<std::size_t>(block.index)];
  const std::uint32_t found = crc32c(bytes);
  if (found == expected) return;
  throw DamagedCheckpoint(fmt::format(
      "{}: offset {}: {} bytes, which hold {}, have the CRC32C {:08x}, expected {:08x}: the file "
      "was damaged or changed",
      path_of(block.file), block.begin, block.bytes, content_of(number), found, expected));
}

void CheckpointReader::read_block(std::int64_t number, std::span<std::byte> out) {
  const Block block = blocks_.at(number);
  ZERO_CHECK(std::ssize(out) == block.bytes, "block {} has {} bytes, room for {} was given", number,
             block.bytes, out.size());
  if (!opened_ || opened_file_ != block.file) {
    opened_ = open(block.file);
    opened_file_ = block.file;
  }
  opened_->read(block.begin, out);
  check_block(number, out);
}

const CheckpointIndex::Tensor* CheckpointReader::find(std::string_view name, StateKind kind) const {
  const auto found =
      std::ranges::find_if(index_.tensors, [&](const CheckpointIndex::Tensor& tensor) {
        return tensor.kind == kind && tensor.name == name;
      });
  return found == index_.tensors.end() ? nullptr : &*found;
}

void CheckpointReader::read(const CheckpointIndex::Tensor& tensor, std::int64_t first,
                            std::span<float> out) {
  ZERO_CHECK(first >= 0 && first <= tensor.count() - std::ssize(out),
             "{}: tensor \"{}\": {} elements from {} on are outside its {} elements", folder_,
             tensor.name, out.size(), first, tensor.count());
  read_bytes(tensor.file, tensor.offset + first * kElementBytes, std::as_writable_bytes(out));
}

void CheckpointReader::read_bytes(std::size_t file, std::int64_t offset, std::span<std::byte> out) {
  const std::int64_t size = index_.files.at(file).bytes;
  ZERO_CHECK(offset >= 0 && offset <= size - std::ssize(out),
             "{}: offset {}: {} bytes from there on are outside its {}", path_of(file), offset,
             out.size(), size);
  while (!out.empty()) {
    const std::int64_t number = blocks_.number(file, offset);
    const Block block = blocks_.at(number);
    if (block_number_ != number) {
      block_number_.reset();  // a read that fails leaves other bytes there
      block_.resize(static_cast<std::size_t>(block.bytes));
      read_block(number, block_);
      block_number_ = number;
    }
    const auto begin = static_cast<std::size_t>(offset - block.begin);
    const std::size_t count = std::min(out.size(), block_.size() - begin);
    std::memcpy(out.data(), block_.data() + begin, count);
    out = out.subspan(count);
    offset += static_cast<std::int64_t>(count);
  }
}

const CheckpointIndex::Tensor* CheckpointReader::first_tensor(std::int64_t number) const {
  const auto tensors = tensors_in(index_, blocks_.at(number));
  return tensors.empty() ? nullptr : tensors.front();
}

std::string CheckpointReader::content_of(std::int64_t number) const {
  const Block block = blocks_.at(number);
  const auto tensors = tensors_in(index_, block);
  if (tensors.empty()) {
    return index_.files[block.file].name.ends_with(".safetensors") ? "the header" : "no tensor";
  }
  const CheckpointIndex::Tensor& first = *tensors.front();
  const std::int64_t begin = std::max(block.begin, first.offset);
  const std::int64_t end = std::min(block.begin + block.bytes, first.end());
  std::string text =
      fmt::format("elements {} to {} of tensor \"{}\"", (begin - first.offset) / kElementBytes,
                  (end - first.offset) / kElementBytes - 1, first.name);
  if (tensors.size() > 1) text += fmt::format(" and {} more", tensors.size() - 1);
  return text;
}

std::vector<CheckpointFault> verify_checkpoint(files::FileSystem& files,
                                               const std::string& folder) {
  std::optional<CheckpointReader> reader;
  if (CheckpointFailure failure = checkpoint_failure_of([&] { reader.emplace(files, folder); })) {
    return {{.reason = std::move(failure.why), .damaged = failure.damaged}};
  }
  std::vector<CheckpointFault> faults;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kBlockBytes));
  for (std::int64_t number = 0; number < reader->blocks().count(); ++number) {
    const Block block = reader->blocks().at(number);
    CheckpointFailure failure = checkpoint_failure_of([&] {
      reader->read_block(number, std::span(bytes).first(static_cast<std::size_t>(block.bytes)));
    });
    if (!failure) continue;
    const CheckpointIndex::Tensor* tensor = reader->first_tensor(number);
    faults.push_back({.file = reader->index().files[block.file].name,
                      .tensor = tensor == nullptr ? "" : tensor->name,
                      .offset = block.begin,
                      .reason = std::move(failure.why),
                      .damaged = failure.damaged});
  }
  return faults;
}

}  // namespace zero
