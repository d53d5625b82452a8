// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Throws zero::Error unless `name`, which `file` has as the value of `key`, is the plain name of a
/// file beside `file`: a file that came from elsewhere must not choose which other files of this
/// machine are opened. A symbolic link of that name is followed: the folder's owner made it.
void check_plain_name(std::string_view file, std::string_view key, std::string_view name);

/// The names of the files that the text of a model.safetensors.index.json lists, each once, sorted.
/// `index` names the text in messages. Throws zero::Error if it is no index, or if a name is
/// not a plain one.
std::vector<std::string> files_of_index(const std::string& index, std::string_view text);

}  // namespace zero
