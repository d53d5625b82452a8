// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// In place of cuDNN on the emulated GPU: there is none, unless a test asks for one that has no
/// plan for any shape, or any with a window, and says so only when it is to prepare one, by an
/// error of ours or another. It computes nothing.
namespace zero::cuda::library_attention {

enum class Kind { none, refuses, refuses_windows, throws };

/// From now on, for devices' operations that are made.
void become(Kind kind);

}  // namespace zero::cuda::library_attention
