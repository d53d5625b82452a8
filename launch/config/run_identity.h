// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "launch/config/configuration.h"

namespace zero {

/// The keys whose values decide the bits of a run at every world, stage and mesh, and `data.train`:
/// a checkpoint names them, and a run that resumes is held to them.
std::vector<std::string> identity_keys();

/// The effective values of those keys, {key: value}; of data.train `data`, the fingerprints of its
/// token shards.
nlohmann::ordered_json identity_of(const Configuration& values,
                                   const std::vector<std::string>& data);

/// The keys among them that the user has left to follow run.steps: the lengths of a schedule. A run
/// that trains on for more steps is not held to the checkpoint's.
std::vector<std::string> keys_of_length(const Configuration& values);

/// A short text that tells a run of this identity from others: the field "run" in the first line of
/// its log. `begin` is what it begins with: a path of weights, a point of another run; empty: drawn
/// from the seed. The length of a schedule does not count: the run may be trained on.
std::string mark_of(const nlohmann::ordered_json& identity, const std::string& begin);

/// Whether a checkpoint's identity is that of a run, whatever the values of the keys `except`.
bool same_identity(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& current,
                   std::span<const std::string> except);

/// A key of an identity whose value differs.
struct IdentityChange {
  std::string key;
  std::string text;  ///< the key and both values
};
/// Compares the identity in a checkpoint with that of a run. Throws zero::Error with each key that
/// differs and both values unless `changes` names the key, and says what can be done. Returns the
/// differences that it names.
std::vector<IdentityChange> changed_identity(const nlohmann::ordered_json& saved,
                                             const nlohmann::ordered_json& current,
                                             std::span<const std::string> changes);

}  // namespace zero
