// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/plan/candidate.h"

namespace zero {

struct TrainConfig;

/// The name that a written configuration has where token files are to be named.
inline constexpr const char* kDataToName = "NAME-YOUR-TOKEN-FILES.bin";

/// And where the folder of files of model states is to be named.
inline constexpr const char* kFolderToName = "NAME-A-FOLDER-ON-NVME";

/// The section `model` that has all sizes of the model, and no name.
nlohmann::json model_section_of(const DecoderShape& model);

/// The configuration file of a candidate, which zero_train takes as it is once data.train, and
/// nvme_path if there is one, name what exists. The model is written by its sizes; run.memory_limit
/// is what the machine leaves.
nlohmann::ordered_json written_configuration(const TrainingQuestion& question,
                                             const Candidate& candidate);

/// What zero_train makes of that file on the machine. Throws zero::Error as it does.
TrainConfig config_of(const TrainingQuestion& question, const Candidate& candidate);

/// Throws zero::Error if one of `count` files that write_configurations() would write exists or
/// cannot be made: before minutes of planning.
void check_written(const std::string& path, std::size_t count);

/// Writes the configuration of each candidate: the first to `path`, the others to `path` with -2,
/// -3, ... before its extension. Returns the names. Throws zero::Error if a file exists or cannot
/// be written; then none is left of those written before it.
std::vector<std::string> write_configurations(const TrainingQuestion& question,
                                              const std::vector<Candidate>& candidates,
                                              const std::string& path);

}  // namespace zero
