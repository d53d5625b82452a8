// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "weights/checkpoint_reader.h"
#include "weights/damaged_checkpoint.h"
#include "weights/text_file.h"

namespace zero {
namespace {

using files::FileSystem;
using files::PathKind;

void append(RemovalNotes& notes, RemovalNotes more) {
  notes.insert(notes.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

/// Runs `work`, whose notes or whose failure are added to `notes`.
template <typename Work>
void note(RemovalNotes& notes, const Work& work) {
  try {
    append(notes, work());
  } catch (const std::exception& error) {  // `keep.removes` is the caller's
    notes.emplace_back(error.what());
  }
}

/// Why `path` is no complete checkpoint; empty if it is one.
CheckpointFailure fault_of(FileSystem& files, const std::string& path) {
  return checkpoint_failure_of([&] { const CheckpointReader reader(files, path); });
}

/// The entries of a folder of checkpoints that are ours. Symbolic links to nothing are entries too.
class Entries {
 public:
  Entries(FileSystem& files, const std::string& folder) {
    for (const std::string& name : files.list(folder)) {
      if (const auto step = parse_checkpoint_name(name)) names_.push_back(*step);
    }
  }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }
  bool contains(const CheckpointName& name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }

 private:
  std::vector<CheckpointName> names_;
};

/// Makes the folder `path` and those above it that are missing, each durable before the next.
void make_folders(FileSystem& files, const std::string& path) {
  const PathKind kind = files.kind_of(path);
  ZERO_CHECK(kind == PathKind::missing || kind == PathKind::folder,
             "{}: is there already and is not a folder; expected the folder of checkpoints", path);
  const std::string parent = folder_of_path(path);
  if (kind == PathKind::missing) {
    make_folders(files, parent);
    files.make_folder(path);
    files.sync_folder(parent);
    return;
  }
  // A process that was killed may have made the folder and not synced it. Where this one may not
  // read the parent, it was not the one that made the folder.
  try {
    files.sync_folder(parent);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

/// Puts FOLDER/step_N.old back if its successor is not there, removes it if that is complete. One
/// that cannot be read may be good, and stays.
RemovalNotes settle_old(FileSystem& files, const std::string& folder, const CheckpointName& old) {
  const std::string path = checkpoint_path(folder, old);
  const CheckpointName successor{old.step};
  if (!Entries(files, folder).contains(successor)) {
    files.rename(path, checkpoint_path(folder, successor));
    return {};
  }
  if (fault_of(files, checkpoint_path(folder, successor))) return {};
  const CheckpointFailure fault = fault_of(files, path);
  if (fault && !fault.damaged) return {};
  return remove_checkpoint(files, path);
}

/// Finishes what an earlier process left half done. A failure is thrown if it concerns the step
/// `step`, which is about to be saved, and is a note otherwise.
RemovalNotes recover_leftovers(FileSystem& files, const std::string& folder, std::int64_t step,
                               const std::set<std::string>& file_names) {
  RemovalNotes notes;
  const auto settle_one = [&](const CheckpointName& name, const auto& work) {
    if (name.step == step) return append(notes, work());
    note(notes, work);
  };
  for (const CheckpointName& name : Entries(files, folder)) {
    switch (name.state) {
      case FolderState::committed:
        break;
      case FolderState::old:
        settle_one(name, [&] { return settle_old(files, folder, name); });
        break;
      case FolderState::partial:
      case FolderState::removed:
        settle_one(name, [&] {
          return remove_checkpoint(files, checkpoint_path(folder, name), file_names);
        });
    }
  }
  return notes;
}

template <typename Files>
std::set<std::string> names_of(const Files& files) {
  std::set<std::string> names;
  for (const auto& file : files) names.insert(file.name);
  return names;
}

/// The folders of `files`, in the checkpoint's folder: "weights", "moments".
template <typename Files>
std::set<std::string> folders_of(const Files& files) {
  std::set<std::string> folders;
  for (const auto& file : files) folders.insert(file.name.substr(0, file.name.find('/')));
  return folders;
}

void check_room(FileSystem& files, const std::string& folder, std::int64_t step,
                std::int64_t bytes) {
  // Beside the files: index.json, the file system's own tables, and the last block of each file.
  const std::int64_t tables = bytes / 500 + (std::int64_t{1} << 20);
  const std::int64_t free = files.free_bytes(folder);
  if (free >= bytes + tables) return;
  const Entries entries(files, folder);
  const bool has_others = std::any_of(entries.begin(), entries.end(), [](const auto& name) {
    return name.state == FolderState::committed;
  });
  constexpr double kMegabyte = 1e6;
  const auto megabytes = [](std::int64_t count) { return static_cast<double>(count) / kMegabyte; };
  fail(
      "{}: has room for {:.1f} MB, expected {:.1f} MB for the checkpoint of step {}: its files "
      "have "
      "{:.1f} MB, index.json and the file system's tables may take {:.1f} MB; free space there{}",
      folder, megabytes(free), megabytes(bytes + tables), step, megabytes(bytes), megabytes(tables),
      has_others ? ", or keep fewer checkpoints" : "");
}

/// The bytes of the files in a folder and in those in it; links are not followed.
std::int64_t bytes_below(FileSystem& files, const std::string& path) {
  if (files.is_link(path)) return 0;
  switch (files.kind_of(path)) {
    case PathKind::file:
      return files.open_read(path)->size();
    case PathKind::folder:
      break;
    default:
      return 0;
  }
  std::int64_t bytes = 0;
  for (const std::string& name : files.list(path)) bytes += bytes_below(files, path + "/" + name);
  return bytes;
}

/// Files that make room for a checkpoint that is about to be committed.
struct Aside {
  RemovalNotes notes{};
  bool keeps_old = false;  ///< step_N.old may be good, and could not be read
};

/// Throws zero::Error if FOLDER/step_N.partial is not the one that begin_checkpoint made for
/// `owner`.
void check_owner(FileSystem& files, const std::string& folder, std::int64_t step,
                 const std::string& owner) {
  const std::optional<std::string> found = owner_of(files, folder, step);
  ZERO_CHECK(found == owner,
             "{}: {} this step in the same folder; end one of the two runs, or give them different "
             "folders",
             owner_path(folder, step),
             found ? "is another process's: another process saves"
                   : "is gone: another process has removed the folder, or saves");
}

/// Makes room for the name of a checkpoint that is about to be committed. A complete one there, or
/// one that cannot be read, goes on under the name step_N.old.
Aside set_aside(FileSystem& files, const std::string& folder, const CheckpointIndex& index) {
  const CheckpointName name{index.step};
  const CheckpointName old{index.step, FolderState::old};
  const Entries entries(files, folder);
  if (!entries.contains(name)) return {};
  const std::string path = checkpoint_path(folder, name);
  const CheckpointFailure fault = fault_of(files, path);
  if (fault.damaged) return {remove_checkpoint(files, path, names_of(index.files))};
  Aside aside;
  if (entries.contains(old)) {
    ZERO_CHECK(!fault, "{}; it was kept, as was {}: mend the cause, or remove one of them",
               fault.why, checkpoint_path(folder, old));
    append(aside.notes, remove_checkpoint(files, checkpoint_path(folder, old)));
  }
  files.rename(path, checkpoint_path(folder, old));
  // Before the name is given away again: no name may be two folders' after a crash.
  files.sync_folder(folder);
  if (fault) {
    aside.keeps_old = true;
    aside.notes.push_back(fmt::format("{}: was kept as {}, since it could not be read: {}", path,
                                      checkpoint_path(folder, old), fault.why));
  }
  return aside;
}

}  // namespace

std::string partial_path(const std::string& folder, std::int64_t step) {
  return checkpoint_path(folder, {step, FolderState::partial});
}

std::string owner_path(const std::string& folder, std::int64_t step) {
  return partial_path(folder, step) + "/OWNER";
}

std::optional<std::string> owner_of(FileSystem& files, const std::string& folder,
                                    std::int64_t step) {
  constexpr std::int64_t kLargest = 1000;
  const std::string path = owner_path(folder, step);
  if (files.kind_of(path) == PathKind::missing) return std::nullopt;
  return read_text(files, path, kLargest);
}

std::vector<FoundCheckpoint> find_checkpoints(FileSystem& files, const std::string& folder) {
  if (files.kind_of(folder) == PathKind::missing) return {};
  std::vector<FoundCheckpoint> steps;
  for (const CheckpointName& name : Entries(files, folder)) {
    if (name.state == FolderState::removed) continue;
    const std::string path = checkpoint_path(folder, name);
    FoundCheckpoint& found = steps.emplace_back(FoundCheckpoint{.name = name, .path = path});
    if (name.state == FolderState::partial) {
      found.fault = path + ": is being written, or was cut off while it was";
      continue;
    }
    const CheckpointFailure fault = checkpoint_failure_of([&] {
      const CheckpointReader reader(files, path);
      found.bytes = reader.index().bytes();
      found.extra = reader.index().extra;
    });
    found.fault = fault.why;
    found.unreadable = fault && !fault.damaged;
  }
  std::sort(steps.begin(), steps.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::tie(b.name.step, a.name.state) < std::tie(a.name.step, b.name.state);
  });
  return steps;
}

std::int64_t leftover_bytes(FileSystem& files, const std::string& folder) {
  std::int64_t bytes = 0;
  try {
    if (files.kind_of(folder) == PathKind::missing) return 0;
    for (const CheckpointName& name : Entries(files, folder)) {
      if (name.state != FolderState::partial && name.state != FolderState::removed) continue;
      bytes += bytes_below(files, checkpoint_path(folder, name));
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the save tells
  }
  return bytes;
}

RemovalNotes begin_checkpoint(FileSystem& files, const std::string& folder, std::int64_t step,
                              const CheckpointLayout& layout, const std::string& owner) {
  ZERO_CHECK(step >= 0, "a checkpoint of step {} cannot be saved", step);
  make_folders(files, folder);
  RemovalNotes notes = recover_leftovers(files, folder, step, names_of(layout.files()));
  check_room(files, folder, step, layout.bytes());
  const std::string partial = partial_path(folder, step);
  files.make_folder(partial);
  write_text(files, owner_path(folder, step), owner);
  for (const std::string& each : folders_of(layout.files())) {
    files.make_folder(fmt::format("{}/{}", partial, each));
  }
  for (const LayoutFile& file : layout.files()) {
    files.create(fmt::format("{}/{}", partial, file.name), file.bytes);
  }
  return notes;
}

RemovalNotes commit_checkpoint(FileSystem& files, const std::string& folder,
                               const CheckpointIndex& index, const std::string& owner) {
  const std::string text = checkpoint_index_text(index);
  const std::string partial = partial_path(folder, index.step);
  check_owner(files, folder, index.step, owner);
  for (const CheckpointIndex::File& file : index.files) {
    files.open_write(fmt::format("{}/{}", partial, file.name))->sync();
  }
  for (const std::string& each : folders_of(index.files)) {
    files.sync_folder(fmt::format("{}/{}", partial, each));
  }
  write_text(files, partial + "/index.json", text);
  write_text(files, partial + "/COMMIT", commit_line(text));
  auto [notes, keeps_old] = set_aside(files, folder, index);
  check_owner(files, folder, index.step, owner);  // the work above may have taken long
  files.remove_file(owner_path(folder, index.step));
  files.sync_folder(partial);
  files.rename(partial, checkpoint_path(folder, {index.step}));
  files.sync_folder(folder);
  const CheckpointName old{index.step, FolderState::old};
  note(notes, [&, keeps = keeps_old]() -> RemovalNotes {
    if (keeps || !Entries(files, folder).contains(old)) return {};
    return remove_checkpoint(files, checkpoint_path(folder, old));
  });
  return notes;
}

RemovalNotes abandon_checkpoint(FileSystem& files, const std::string& folder, std::int64_t step,
                                const CheckpointLayout& layout, const std::string& owner) {
  RemovalNotes notes;
  note(notes, [&]() -> RemovalNotes {
    if (!Entries(files, folder).contains({step, FolderState::partial})) return {};
    // One without an owner was cut off before it had one, or at the end of a commit. Where the disk
    // was full, the owner's name is cut off.
    const std::optional<std::string> found = owner_of(files, folder, step);
    if (found && !owner.starts_with(*found)) check_owner(files, folder, step, owner);
    return remove_checkpoint(files, partial_path(folder, step), names_of(layout.files()));
  });
  return notes;
}

Pruned prune_checkpoints(FileSystem& files, const std::string& folder, const KeepSteps& keep,
                         std::int64_t newest) {
  ZERO_CHECK(keep.last >= 0 && keep.every >= 0,
             "keep_last is {} and keep_every {}; expected numbers from 0", keep.last, keep.every);
  Pruned pruned;
  if (keep.last == 0) return pruned;
  std::set<std::int64_t> seen;  // complete, from `newest` back
  for (const FoundCheckpoint& found : find_checkpoints(files, folder)) {
    const std::int64_t step = found.name.step;
    if (!found.complete() || step > newest) continue;
    note(pruned.notes, [&]() -> RemovalNotes {
      if (keep.removes && !keep.removes(step, found.extra)) {
        return {};
      }
      seen.insert(step);
      const bool for_good = keep.every > 0 && step % keep.every == 0;
      if (std::ssize(seen) <= keep.last || for_good) return {};
      RemovalNotes notes = remove_checkpoint(files, found.path);
      if (pruned.steps.empty() || pruned.steps.back() != step) pruned.steps.push_back(step);
      return notes;
    });
  }
  return pruned;
}

}  // namespace zero
