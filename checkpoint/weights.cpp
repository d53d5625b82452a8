// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "checkpoint/file.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_parts.h"
#include "collectives/agreement.h"
#include "collectives/store.h"

namespace zero {
namespace {

/// Throws on all ranks unless the primary parts of all ranks together have as many elements as the
/// tensors.
void check_cover(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                 std::string_view purpose) {
  std::int64_t mine = 0;
  std::int64_t whole = 0;
  for (const LogicalTensor& tensor : tensors) {
    whole += element_count(tensor.shape).value_or(0);
    for (const LogicalTensor::Part& part : tensor.parts) {
      if (part.primary) mine += part.values.count();
    }
  }
  std::int64_t listed = 0;
  for (const std::string& text :
       exchange(ranks.communicator, ranks.device, std::to_string(mine), purpose)) {
    listed += std::stoll(text);
  }
  ZERO_CHECK(listed == whole, "{}: the ranks list {} elements, expected each of {} once", purpose,
             listed, whole);
}

}  // namespace

void together(const Ranks& ranks, std::string_view purpose, const std::function<void()>& work) {
  agree(ranks.communicator, ranks.device, purpose, [&] {
    const std::string why = failure_of(work);
    ZERO_CHECK(why.empty(), "[rank {}] {}: {}", ranks.communicator.rank(), purpose, why);
  });
}

void load_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path, const NameMap& names) {
  std::vector<SafetensorsReader> files;
  FileMatch match;
  together(ranks, "load_weights", [&] {
    for (const std::string& file : weight_files(path)) files.emplace_back(file);
    match = match_files(files, tensors, names);
    check_aliases(tensors, match);
  });
  together(ranks, "load_weights", [&] { read_parts(tensors, match, ranks.pieces); });
}

void save_tensors(const Ranks& ranks, std::span<const LogicalTensor> tensors,
                  const std::string& path) {
  constexpr std::string_view kPurpose = "save_weights";
  const bool first = ranks.communicator.rank() == 0;
  const std::string partial = path + ".partial";
  check_cover(ranks, tensors, kPurpose);
  std::optional<SafetensorsWriter> file;
  bool made = false;
  try {
    together(ranks, kPurpose, [&] {
      if (!first) return;
      check_target(path);
      check_target(partial);
      made = true;
      file = SafetensorsWriter::create(partial, layout_of(tensors));
    });
    together(ranks, kPurpose, [&] {
      if (!first) file = SafetensorsWriter::open(partial, layout_of(tensors));
      write_parts(*file, tensors, ranks.pieces);
      file->finish();
    });
    together(ranks, kPurpose, [&] {
      if (first) replace_file(partial, path);
    });
  } catch (...) {
    std::error_code ignored;
    if (made) std::filesystem::remove(partial, ignored);
    throw;
  }
}

void load_weights(Engine& engine, const std::string& path, const NameMap& names) {
  const auto tensors = split_tensors(engine.state(StateKind::parameter), names);
  load_tensors({engine.communicator(), engine.device(), engine.pieces()}, tensors, path, names);
  engine.publish_parameters();
}

void save_weights(Engine& engine, const std::string& path, const NameMap& names) {
  const auto tensors = split_tensors(engine.state(StateKind::parameter), names);
  save_tensors({engine.communicator(), engine.device(), engine.pieces()}, tensors, path);
}

}  // namespace zero
