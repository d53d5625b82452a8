// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/mesh.h"
#include "launch/config/configuration.h"
#include "model/tensor_parallel.h"

namespace zero {

/// How the ranks of the job are laid out: the section `mesh`, or DeepSpeed's keys of the same
/// meaning, with open sizes filled in. Throws zero::Error naming the keys if they do not
/// make the world, or contradict each other.
MeshShape make_mesh_shape(Configuration& values, int world);

/// How the ranks of the tensor axis work together: the rest of the section.
TensorOptions make_tensor_options(const Configuration& values);

}  // namespace zero
