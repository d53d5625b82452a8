// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace zero {

/// The token files of a run, in name order.
struct DataFiles {
  std::vector<std::string> train;
  std::vector<std::string> validation;
  std::vector<std::string> lines;  ///< for users: files that were left out of train, and why
};

/// Whether the name is not that of what lies beside token files: a digest, a lock, or a file that
/// is not finished.
bool may_be_token_file(const std::string& path);

/// Expands data.train and data.validation: files, folders and patterns with * ? [ ]. A folder
/// stands for its .bin files: under data.validation for those whose names have the word val, valid,
/// validation or eval (fineweb_val_000000.bin; all if no name has such a word or "train"), under
/// data.train for the others (for those with the word "train" if there are any). A file of
/// `validation` is never one of `train`: found by a folder or a pattern it is left out, with a
/// line. Throws zero::Error naming the key if a name matches no file, a file is named twice or in
/// both, a file of a folder or a pattern is missing beside its digest, or nothing is left.
DataFiles find_data_files(const std::vector<std::string>& train,
                          const std::vector<std::string>& validation);

/// The files of one key, "data.train" or "data.validation", as find_data_files() expands it.
std::vector<std::string> expand_data_files(const std::vector<std::string>& names,
                                           const std::string& key);

}  // namespace zero
