// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// The names of the files that the text of a model.safetensors.index.json lists, each once, sorted.
/// `index` names the text in messages. Throws zero::Error if it is no index, or if a name is not
/// the plain name of a file: a file that came from elsewhere must not choose which other files of
/// this machine are opened. A symbolic link of a plain name is followed: the folder's owner made
/// it.
std::vector<std::string> files_of_index(const std::string& index, std::string_view text);

}  // namespace zero
