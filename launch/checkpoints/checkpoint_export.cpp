// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "launch/checkpoints/checkpoint_tool.h"
#include "weights/checkpoint_reader.h"
#include "weights/hf/file_header.h"

namespace zero::checkpoint_tool {
namespace {

constexpr const char* kWeights = "weights/";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Writes the weights of one checkpoint into a folder.
class Export {
 public:
  Export(files::FileSystem& files, CheckpointReader& reader, std::string out)
      : files_(files), reader_(reader), out_(std::move(out)) {}

  /// Returns the bytes written. If it fails, no file stays.
  std::int64_t run(DType dtype) {
    try {
      write_all(dtype);
      return bytes_;
    } catch (...) {
      for (const std::string& path : written_) remove_quietly(path);
      throw;
    }
  }

 private:
  void write_all(DType dtype) {
    const std::vector<CheckpointIndex::File>& all = reader_.index().files;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].name.starts_with(kWeights)) continue;
      const std::string name = all[i].name.substr(std::string_view(kWeights).size());
      if (dtype == DType::fp32) {
        copy(i, name);
      } else if (name.ends_with(".safetensors")) {
        convert(i, name, dtype);
      } else {
        write_text(name, text_as(dtype, name, text_of(i)));
      }
    }
    files_.sync_folder(out_);
  }

  void remove_quietly(const std::string& path) noexcept {
    try {
      files_.remove_file(path);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the export throws why it failed
    }
  }

  /// Whole once it has its name.
  void write_file(const std::string& name, std::int64_t bytes,
                  const std::function<void(files::OutputFile&)>& fill) {
    const std::string path = out_ + "/" + name;
    written_.push_back(path + ".partial");
    const auto file = files_.create(path + ".partial", bytes);
    fill(*file);
    file->sync();
    files_.rename(path + ".partial", path);
    written_.back() = path;
    bytes_ += bytes;
  }

  void write_text(const std::string& name, const std::string& text) {
    write_file(name, std::ssize(text),
               [&](files::OutputFile& file) { file.write(0, std::as_bytes(std::span(text))); });
  }

  void for_each_block(std::size_t file,
                      const std::function<void(std::int64_t, std::span<std::byte>)>& visit) {
    const std::int64_t first = reader_.blocks().first(file);
    const std::int64_t count = blocks_of(reader_.index().files[file].bytes);
    std::vector<std::byte> bytes(static_cast<std::size_t>(kBlockBytes));
    for (std::int64_t number = first; number < first + count; ++number) {
      const Block block = reader_.blocks().at(number);
      const auto part = std::span(bytes).first(static_cast<std::size_t>(block.bytes));
      reader_.read_block(number, part);
      visit(block.begin, part);
    }
  }

  void copy(std::size_t source, const std::string& name) {
    write_file(name, reader_.index().files[source].bytes, [&](files::OutputFile& file) {
      for_each_block(source, [&](std::int64_t begin, std::span<std::byte> bytes) {
        file.write(begin, bytes);
      });
    });
  }

  std::string text_of(std::size_t source) {
    std::string text;
    for_each_block(source, [&](std::int64_t /*begin*/, std::span<std::byte> bytes) {
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    return text;
  }

  /// The small files tell the dtype or the bytes of the weights.
  static std::string text_as(DType dtype, const std::string& name, const std::string& text) {
    if (name != "config.json" && name != kIndex) return text;
    nlohmann::ordered_json json = parse_ordered_tree(text).value_or(nullptr);
    if (!json.is_object()) return text;  // the trainer's choice
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (name != kIndex && json.contains(key))
        json[key] = dtype == DType::bf16 ? "bfloat16" : "float16";
    }
    if (name == kIndex) {
      auto& bytes = json.at("metadata").at("total_size");
      bytes = bytes.get<std::int64_t>() / 2;
    }
    return json.dump(2) + "\n";
  }

  void convert(std::size_t source, const std::string& name, DType dtype) {
    const FileType type = dtype == DType::bf16 ? FileType::bf16 : FileType::f16;
    std::vector<FileTensor> tensors;
    for (const CheckpointIndex::Tensor& tensor : reader_.index().tensors) {
      if (tensor.file != source) continue;
      tensors.push_back({.name = tensor.name, .type = type, .shape = tensor.shape});
    }
    const FileHeader header = lay_out(std::move(tensors), {{"format", "pt"}});
    const std::string head = header_bytes(header);
    const std::int64_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
    write_file(name, header.data_begin + data, [&](files::OutputFile& file) {
      file.write(0, std::as_bytes(std::span(head)));
      for (const FileTensor& tensor : header.tensors) {
        const std::int64_t at = header.data_begin + tensor.begin;
        const CheckpointIndex::Tensor& from = *reader_.find(tensor.name, StateKind::parameter);
        dtype == DType::bf16 ? write_rounded(file, at, from, to_bfloat16)
                             : write_rounded(file, at, from, to_float16);
      }
    });
  }

  /// Rounds to two bytes each. Throws if a finite weight would become infinite.
  template <typename To>
  void write_rounded(files::OutputFile& file, std::int64_t offset,
                     const CheckpointIndex::Tensor& tensor, To (*round)(float)) {
    std::vector<To> rounded;
    for_each_chunk(reader_, tensor, [&](std::int64_t begin, std::span<const float> values) {
      rounded.resize(values.size());
      std::ranges::transform(values, rounded.begin(), round);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ZERO_CHECK(!std::isfinite(values[i]) || std::isfinite(to_float(rounded[i])),
                   "{}: element {} is {}, too large for {}; export as another type", tensor.name,
                   begin + static_cast<std::int64_t>(i), values[i], name_of(dtype_of<To>));
      }
      file.write(offset + begin * static_cast<std::int64_t>(sizeof(To)),
                 std::as_bytes(std::span(rounded)));
    });
  }

  files::FileSystem& files_;
  CheckpointReader& reader_;
  std::string out_;
  std::vector<std::string> written_;
  std::int64_t bytes_ = 0;
};

/// Makes the folder `path` and those above it that are missing.
void make_folders(files::FileSystem& files, const std::string& path) {
  if (files.kind_of(path) == files::PathKind::folder) return;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty() && files.kind_of(parent) == files::PathKind::missing) {
    make_folders(files, parent);
  }
  files.make_folder(path);
}

}  // namespace

Answer export_weights(files::FileSystem& files, const std::string& path, const std::string& out,
                      DType dtype) {
  ZERO_CHECK(dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16,
             "weights are exported as fp32, bf16 or fp16, found {}", name_of(dtype));
  CheckpointReader reader(files, find_checkpoint(files, path));
  const files::PathKind kind = files.kind_of(out);
  ZERO_CHECK(kind == files::PathKind::missing ||
                 (kind == files::PathKind::folder && files.list(out).empty()),
             "{} is there already and is no empty folder; give a new one", out);
  make_folders(files, out);
  const std::int64_t bytes = Export(files, reader, out).run(dtype);
  return {.text = fmt::format("{}: the weights of step {} as {}, {}\n", out, reader.index().step,
                              name_of(dtype), decimal_bytes(bytes))};
}

}  // namespace zero::checkpoint_tool
