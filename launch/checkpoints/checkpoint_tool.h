// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/checkpoint_folder.h"
#include "files/file_system.h"
#include "weights/checkpoint_reader.h"

/// The commands of zero_ckpt. They need no rank, model or device. `path` is a checkpoint or, except
/// for list and prune, a folder of checkpoints: then its newest complete one is meant (verify: all
/// of them). Each throws zero::Error if it cannot be done.
namespace zero::checkpoint_tool {

struct Answer {
  enum class Verdict { yes, unknown, no };
  /// no: a checkpoint is damaged, or two differ; unknown: one could not be read.
  Verdict verdict = Verdict::yes;
  std::string text{};  ///< whole lines
};

enum class Form { text, json };

/// The checkpoints in a folder, newest first: step, size, time, and why one is not complete.
Answer list(files::FileSystem& files, const std::string& folder, Form form);
/// Reads every byte and checks its sum. Warns of symbolic links, and of files that are not of the
/// checkpoint.
Answer verify(files::FileSystem& files, const std::string& path);
/// The trainer's values and the tensors.
Answer show(files::FileSystem& files, const std::string& path);
/// The first element that differs, and of each tensor how many do and by how much at most.
Answer compare(files::FileSystem& files, const std::string& path, const std::string& other);
/// Writes the weights, verified, as a Hugging Face folder `out`, which must be new or empty, as
/// fp32, bf16 or fp16. If that fails, as for a weight that the type does not hold, no file of it
/// stays.
Answer export_weights(files::FileSystem& files, const std::string& path, const std::string& out,
                      DType dtype);
/// Removes complete checkpoints but those that `keep` keeps; never the newest. Reads every byte of
/// the newest `keep.last` first: those that are damaged, or cannot be read, stay and do not count.
Answer prune(files::FileSystem& files, const std::string& folder, const KeepSteps& keep);

/// Reads a tensor, verified, in chunks: visit(first element, values).
void for_each_chunk(
    CheckpointReader& reader, const CheckpointIndex::Tensor& tensor,
    const std::function<void(std::int64_t begin, std::span<const float> values)>& visit);
struct Newest {
  std::string path;
  std::vector<std::string> passed_over{};  ///< why newer ones, which were committed, are not meant
};
/// The checkpoint at `path`, or the newest complete one in the folder `path`. Throws zero::Error if
/// there is none.
Newest newest_checkpoint(files::FileSystem& files, const std::string& path);
/// Its path.
std::string find_checkpoint(files::FileSystem& files, const std::string& path);

}  // namespace zero::checkpoint_tool
