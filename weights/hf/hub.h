// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

/// What to give instead of `path`, which is no folder of a model that can be opened, as "; ..." to
/// end a message with: for a name of Hugging Face's hub, which no file has; a folder of the hub's
/// cache, which holds the model below; a folder or a file of weights in another format. Empty:
/// nothing known.
std::string folder_advice(const std::string& path);

}  // namespace zero
