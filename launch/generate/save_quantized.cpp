// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "base/error.h"
#include "files/file_system.h"
#include "inference/quantized_writer.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/generate_program.h"
#include "launch/telemetry/output.h"
#include "launch/train/tokenizer_files.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"
#include "weights/text_file.h"

namespace zero {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// A folder that has its name once it is whole; before that, it ends with ".partial".
class NewFolder {
 public:
  NewFolder(files::FileSystem& disk, const std::string& path)
      : disk_(disk), path_(without_slash(path)), partial_(path_ + ".partial") {
    const std::string name = std::filesystem::path(path_).filename().string();
    ZERO_CHECK(!name.empty() && name != "." && name != "..",
               "--save-quantized {}: expected a path that ends with the name of a new folder",
               path);
    ZERO_CHECK(!is_there(path_), "--save-quantized {}: is there already; give a new name", path_);
    files::check_target(disk, path_);
    std::error_code error;
    // One of two saves makes it.
    const bool made = std::filesystem::create_directory(partial_, error);
    ZERO_CHECK(!error, "{}: cannot make the folder: {}", partial_, error.message());
    ZERO_CHECK(made,
               "--save-quantized {}: {} is there, of a save under way or one that did not end; "
               "remove it if none is under way",
               path_, partial_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    if (partial_.empty()) return;
    try {
      const auto folder = disk_.open_folder(partial_);
      for (const std::string& name : folder->list()) folder->remove_file(name);
      disk_.remove_folder(partial_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the save throws why it failed
    }
  }

  std::string file(const std::string& name) const { return partial_ + "/" + name; }
  const std::string& path() const { return path_; }
  void finish() {
    disk_.sync_folder(partial_);
    disk_.rename(partial_, path_);
    partial_.clear();
    disk_.sync_folder(files::folder_of(path_));
  }

 private:
  bool is_there(const std::string& path) const {
    return disk_.is_link(path) || disk_.kind_of(path) != files::PathKind::missing;
  }

  files::FileSystem& disk_;
  std::string path_;
  std::string partial_;
};

const char* torch_name(DType dtype) {
  return dtype == DType::fp32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
}

}  // namespace

int save_quantized(const GenerateFlags& flags, files::FileSystem& disk) {
  const std::string folder = find_model_folder(disk, flags.model, say_line);
  const QuantizedFormats formats{weight_format_from_name(flags.weights),
                                 dtype_from_name(flags.dtype)};
  ZERO_CHECK(formats.codes != WeightFormat::plain,
             "--save-quantized: --weights is dtype; expected int8, nf4 or q4");
  const ModelFolder model(folder);
  ZERO_CHECK(model.format() == WeightFormat::plain,
             "--save-quantized: {} has codes of {} already; take the folder from which they were "
             "made",
             folder, model.codes());
  std::map<std::string, std::string> small = tokenizer_files(folder, "--save-quantized");
  const std::string config = folder + "/" + kConfig;
  small[kConfig] = quantized_config_text(config, read_model_text(config), name_of(formats.codes),
                                         torch_name(formats.vectors));
  NewFolder out(disk, flags.save_quantized);
  const std::int64_t bytes =
      write_quantized(model, formats, threads_of(flags), disk, out.file(kWeights));
  for (const auto& [name, text] : small) write_text(disk, out.file(name), text);
  out.finish();
  const auto parameters = static_cast<double>(model.shape().parameter_count());
  print(fmt::format("{}: weights of {} bytes, {:.4f} a parameter\n", out.path(), bytes,
                    static_cast<double>(bytes) / parameters));
  return 0;
}

}  // namespace zero
