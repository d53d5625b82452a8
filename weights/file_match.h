// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "architecture/name_map.h"
#include "device/view.h"
#include "weights/checkpoint_layout.h"
#include "weights/hf/safetensors.h"

namespace zero {

// Tensors in the safetensors files of others, in names, types and files of their choice, without
// communication.

/// A tensor of a file.
struct FileSource {
  const SafetensorsReader* file = nullptr;
  const FileTensor* tensor = nullptr;
};
/// For messages: "PATH: tensor \"NAME\"".
std::string place_of(const FileSource& source);

/// The file and tensor that each of a list of tensors matches, in the order of the list.
struct FileMatch {
  std::vector<FileSource> sources;
  struct Alias {
    FileSource source;
    std::size_t tensor;  ///< index of the tensor that the alias must equal
  };
  std::vector<Alias> aliases;
};

/// Searches `files`, which must outlive the match, as if they were one file, for the names (or, if
/// they are not there, the aliases) and shapes of `tensors`. Throws zero::Error naming file,
/// tensor, found and expected if one is missing, repeated, has another shape or a type other than
/// F32, BF16 and F16, or if a file holds a tensor that neither `tensors` nor `names` knows, nor
/// `others` takes, if there is one.
FileMatch match_files(
    std::span<const SafetensorsReader> files, std::span<const LayoutTensor> tensors,
    const NameMap& names,
    const std::function<bool(std::string_view bare_name, const FileSource& tensor)>& others = {});

/// Elements [begin, begin + count) of a tensor of the list.
using FileRange = std::function<void(std::int64_t begin, std::int64_t count)>;
/// Calls the given function for the elements of tensor `tensor` of the list that a rank holds.
using HeldElements = std::function<void(std::size_t tensor, const FileRange& visit)>;

/// Throws zero::Error if an alias and its tensor differ in value in an element that is held.
void check_aliases(const FileMatch& match, const HeldElements& held);

/// Takes `values`, the elements of a tensor from `begin` on.
using SetElements = std::function<void(std::size_t tensor, std::int64_t begin, const View& values)>;
/// Reads the elements that are held, and no others: gives them to `set` in runs of at most 1 MiB of
/// fp32, in host memory.
void read_elements(const FileMatch& match, const HeldElements& held, const SetElements& set);

/// The parameters of a model in safetensors files, by their registered names, fused matrices too,
/// without an engine.
class WeightFiles {
 public:
  /// Those of ModelWeights::tensors(). Throws zero::Error as load_weights does.
  WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape);

  /// What files hold in another form than elements.
  struct Codes {
    /// Whether a parameter is in codes; by its index in the list.
    std::function<bool(std::size_t parameter)> holds;
    /// Whether the tensor of files with that name, without the prefix of all names, is of codes.
    std::function<bool(std::string_view bare_name, const FileSource& tensor)> takes;
  };
  /// Likewise, of all other parameters and tensors.
  WeightFiles(std::vector<SafetensorsReader> files, const DecoderShape& shape, const Codes& codes);

  /// Fills `values` from element `begin` of tensor `tensor` of the list on, as fp32.
  void read(std::size_t tensor, std::int64_t begin, std::span<float> values) const;

  std::span<const SafetensorsReader> files() const { return files_; }
  const NameMap& names() const { return names_; }

 private:
  NameMap names_;
  std::vector<SafetensorsReader> files_;
  std::vector<LayoutTensor> layout_;  ///< as files hold them
  FileMatch match_;
};

/// The parameters of a model as files hold them: pieces of a fused one under their own names.
/// LayoutTensor::source is an index in all_parameters().
std::vector<LayoutTensor> tensors_of_files(const DecoderShape& shape);

}  // namespace zero
