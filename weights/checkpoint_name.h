// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// What the name of a checkpoint's folder tells about the folder, in the order in which they are
/// preferred for loading.
enum class FolderState : std::uint8_t {
  committed,  ///< step_00000500: whole
  old,        ///< step_00000500.old: committed; another of the same step is replacing it
  partial,    ///< step_00000500.partial: being written, or cut off while it was
  removed,    ///< step_00000500.removed, .removed.2, .removed.3, ...: being removed
};

/// The name of a folder that belongs to the checkpoints of a run. Names that differ in any
/// character, as step_500 or step_00000500x, belong to others: never read, never touched.
struct CheckpointName {
  std::int64_t step = 0;
  FolderState state = FolderState::committed;
  /// Number of a removed folder: 2 if step_N.removed still exists because it holds files that no
  /// checkpoint wrote, and so on.
  int copy = 1;

  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// "step_00000500.partial"
std::string text_of(const CheckpointName& name);
/// The inverse of text_of; empty for anything else.
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

/// FOLDER/step_00000500
std::string checkpoint_path(const std::string& folder, const CheckpointName& name);
/// The last component of a path, and the folder that holds it; slashes at the end do not count.
std::string name_of_path(const std::string& path);
std::string folder_of_path(const std::string& path);

}  // namespace zero
