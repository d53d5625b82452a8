// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Whether `name` can only name a file of the folder it is looked up in.
bool is_plain_name(std::string_view name);

/// The file names that the text of a model.safetensors.index.json lists, each once, sorted. `index`
/// names the text in messages. Throws zero::Error if the text is no index, or if a name is not a
/// plain file name: a downloaded file must not choose which other files of this machine are opened.
/// Symbolic links of plain names are followed: the folder's owner made them.
std::vector<std::string> files_of_index(const std::string& index, std::string_view text);

}  // namespace zero
