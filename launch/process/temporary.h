// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// Makes an empty file "NAME_XXXXXX" in the folder TMPDIR (/tmp unless it is set), which only this
/// user may read; the caller removes it. Throws zero::Error with the system's reason.
std::string make_temporary_file(std::string_view name);
/// The same, a folder.
std::string make_temporary_folder(std::string_view name);

}  // namespace zero
