// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/mesh.h"
#include "launch/configuration.h"

namespace zero {

/// How the ranks of the job are laid out: the section `mesh`, or DeepSpeed's keys of the same
/// meaning, with what was left open filled in. Throws zero::Error naming the keys where they do not
/// make the world, or contradict each other.
MeshShape make_mesh_shape(Configuration& values, int world);

}  // namespace zero
