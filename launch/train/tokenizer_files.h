// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace zero {

class Batches;
struct TrainConfig;

/// A tokenizer, as make_tokenizer takes it, and the key that names it.
struct NamedTokenizer {
  std::string key;
  std::string name;
};

/// The tokenizer that is saved with the weights: data.tokenizer if it is given, else that in the
/// folder model.hf or run.init, else what data.tokenizer is by default; without a name: none.
NamedTokenizer saved_tokenizer(const TrainConfig& config);

/// The small files that a checkpoint holds beside its weights, by name and with their content, so
/// that the folder `weights` opens as it is: config.json, with every field that the folder model.hf
/// or run.init has in its own, that folder's generation_config.json, and the files of
/// saved_tokenizer(). Throws zero::Error naming key and file.
std::map<std::string, std::string> weight_folder_files(const TrainConfig& config);

/// For ranks to compare, of weight_folder_files() if the run saves folders of weights; else
/// nothing.
std::map<std::string, std::string> weight_file_fingerprints(const TrainConfig& config);

/// The files of transformers' tokenizers in a model's folder, and its defaults for generating text,
/// by name and with their content; chat templates in files of their own come in a list within
/// tokenizer_config.json if the folder has more than one. Throws zero::Error naming `key`, for
/// which they are copied, and the file.
std::map<std::string, std::string> tokenizer_files(const std::string& folder,
                                                   const std::string& key);

/// Compares the tokenizer that the digests of the data's files name with saved_tokenizer(). Throws
/// zero::Error naming file and key if they differ, or if data.tokenizer cannot be read. Does
/// nothing for files whose digest names none. Returns a line for users that says why a model's
/// tokenizer, which is not computed here, was not compared; empty if there is nothing to say.
std::string check_data_tokenizer(const TrainConfig& config, const Batches& batches);

}  // namespace zero
