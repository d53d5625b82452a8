// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/file_header.h"

namespace zero {

/// Reads the JSON text of a header as it is written: tensors in the text's order, metadata. Checks
/// its form alone (JSON, the fields of each tensor and their types, names that repeat), not the
/// places of the bytes. Throws zero::Error naming file, tensor and offset.
FileHeader read_header_text(const std::string& file, std::string_view json);

}  // namespace zero
