// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "base/error.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/state_tensors.h"
#include "collectives/agreement.h"
#include "files/file_system.h"
#include "partition/flat_layout.h"
#include "weights/checkpoint_layout.h"
#include "weights/file_match.h"
#include "weights/hf/config.h"
#include "weights/hf/safetensors.h"
#include "weights/model_files.h"
#include "weights/text_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr std::array kWeightKinds = {StateKind::parameter};
// Of a Hugging Face folder.
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kConfigFile = "config.json";

/// The parameters in one file.
CheckpointLayout layout_of(const StateTensors& tensors, const NameMap& names) {
  return lay_out_checkpoint(tensors.all(), names,
                            {.file_bytes = std::numeric_limits<std::int64_t>::max()});
}

/// Which elements of the tensors of files this rank owns.
HeldElements held_by(const EngineStates& states, const StateTensors& tensors,
                     const CheckpointLayout& layout) {
  return [&](std::size_t index, const FileRange& visit) {
    const LayoutTensor& tensor = layout.tensors()[index];
    const FlatRange piece{tensor.source_begin, tensor.count()};
    for (const StateRun& run : states.runs(tensors[tensor.source])) {
      const FlatRange held = piece.within({run.begin, run.count});
      if (held.count > 0) visit(held.begin - piece.begin, held.count);
    }
  };
}

void require_values(Engine& engine, std::string_view purpose, const std::string& path) {
  ZERO_CHECK(
      engine.device().has_memory(),
      "[rank {}] {}({}): the device \"{}\" has no memory, so there are no values; give an engine "
      "on the device of a run",
      engine.communicator().rank(), purpose, path, engine.device().name());
}

/// Runs all rounds of a writer at once.
void write_all(Engine& engine, BlockWriter& writer) {
  Stream& transfer = engine.device().transfer();
  transfer.wait(engine.device().compute().record());
  for (int round = 0; round < writer.rounds(); ++round) writer.submit(round);
  transfer.synchronize();
}

/// Rank 0's part in the failure of a save: nothing stays beside the old file.
void remove_quietly(files::FileSystem& disk, const std::string& path) noexcept {
  try {
    disk.remove_file(path);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the save throws why it failed
  }
}

// Rank 0's part: replaces `path` by a file with `text`.
void write_whole(const fs::path& path, const std::string& text) {
  const std::string partial = path.string() + ".partial";
  write_text(files::disk(), partial, text);
  files::replace_file(files::disk(), partial, path.string());
}

}  // namespace

void together(Engine& engine, std::string_view purpose, const std::function<void()>& work) {
  agree(engine.communicator(), engine.device(), purpose, [&] {
    const std::string why = failure_of(work);
    ZERO_CHECK(why.empty(), "[rank {}] {}: {}", engine.communicator().rank(), purpose, why);
  });
}

void load_weights(Engine& engine, const std::string& path, const NameMap& names) {
  require_values(engine, "load_weights", path);
  const StateTensors tensors(engine.states(), kWeightKinds);
  const CheckpointLayout layout = layout_of(tensors, names);
  const HeldElements held = held_by(engine.states(), tensors, layout);
  std::vector<SafetensorsReader> files;
  FileMatch match;
  together(engine, "load_weights", [&] {
    files = open_weights(path);
    match = match_files(files, layout.tensors(), names);
    check_aliases(match, held);
  });
  engine.states().finish_reads();
  together(engine, "load_weights", [&] {
    read_elements(match, held, [&](std::size_t index, std::int64_t begin, const View& values) {
      const LayoutTensor& tensor = layout.tensors()[index];
      engine.states().set(tensors[tensor.source], tensor.source_begin + begin, values);
    });
  });
  engine.states().publish_parameters();
}

void save_weights(Engine& engine, const std::string& path, const NameMap& names,
                  files::FileSystem& disk) {
  constexpr std::string_view kPurpose = "save_weights";
  require_values(engine, kPurpose, path);
  const bool first = engine.communicator().rank() == 0;
  const std::string partial = path + ".partial";
  StateTensors tensors(engine.states(), kWeightKinds);
  CheckpointLayout layout = layout_of(tensors, names);
  BlockWriter writer({engine, disk}, std::move(tensors), std::move(layout), SaveStates::any);
  bool made = false;
  try {
    together(engine, kPurpose, [&] {
      if (!first) return;
      files::check_target(disk, path);
      files::check_target(disk, partial);
      made = true;
      disk.create(partial, writer.layout().bytes());
    });
    together(engine, kPurpose, [&] {
      std::vector<std::unique_ptr<files::OutputFile>> file(1);
      if (writer.writes(0)) file[0] = disk.open_write(partial);
      writer.begin(std::move(file));
    });
    write_all(engine, writer);
    together(engine, kPurpose, [&] {
      writer.close();
      ZERO_CHECK(writer.failure().empty(), "{}", writer.failure());
    });
    together(engine, kPurpose, [&] {
      if (first) files::replace_file(disk, partial, path);
    });
  } catch (...) {
    if (made) remove_quietly(disk, partial);
    throw;
  }
}

bool names_folder(const std::string& path) { return path.ends_with('/'); }

void check_folder_target(const std::string& folder) {
  // parent_path() of "a/b/" is "a/b", whose parent_path() is "a".
  const fs::path bare = fs::absolute(folder).parent_path();
  const files::PathKind kind = files::disk().kind_of(bare.string());
  ZERO_CHECK(kind == files::PathKind::missing || kind == files::PathKind::folder,
             "{}: is there already and is not a folder", bare.string());
  if (kind == files::PathKind::folder) {
    for (const char* name : {kWeightsFile, kConfigFile}) {
      const std::string path = (fs::path(folder) / name).string();
      files::check_target(files::disk(), path);
      files::check_target(files::disk(), path + ".partial");
    }
    return;
  }
  files::check_target(files::disk(), bare.string());
}

void save_hf_folder(Engine& engine, const std::string& folder, const DecoderShape& shape,
                    const std::map<std::string, std::string>& beside) {
  const bool first = engine.communicator().rank() == 0;
  together(engine, "save_weights", [&] {
    const std::string bare = fs::path(folder).parent_path().string();
    // A link to a folder will do.
    if (first && files::disk().kind_of(bare) != files::PathKind::folder) {
      files::disk().make_folder(bare);
    }
  });
  save_weights(engine, (fs::path(folder) / kWeightsFile).string(), file_names(shape));
  together(engine, "save_weights", [&] {
    if (!first) return;
    std::map<std::string, std::string> small = beside;
    small.try_emplace(kConfigFile, hf_config_text(shape));
    for (const auto& [name, content] : small) write_whole(fs::path(folder) / name, content);
  });
}

}  // namespace zero
