// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/data_tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/data/tokenizer_mark.h"
#include "launch/train/tokenizer_files.h"

namespace zero {

void check_data_tokenizer(const TrainConfig& config, const Batches& batches) {
  const std::vector<DataFile> files = batches.files();
  const auto named = [](const DataFile& each) {
    return each.file.digest() != nullptr && each.file.digest()->tokenizer;
  };
  if (std::ranges::none_of(files, named)) return;
  const auto [key, name] = saved_tokenizer(config);
  if (name.empty()) return;
  TokenizerMark mark;
  try {
    mark = mark_of(*make_tokenizer(name));
  } catch (const Error& error) {
    if (key == "data.tokenizer") fail("{}: {}", key, error.what());
    return;  // a model's may be passed on without being computed
  }
  for (const DataFile& each : files) {
    if (!named(each)) continue;
    const TokenizerMark& made = *each.file.digest()->tokenizer;
    ZERO_CHECK(made == mark,
               "{}: {} has tokens of another tokenizer (of {} ids, hash {:016x}) than {} {} (of {} "
               "ids, hash {:016x}); give data.tokenizer the one that zero_prepare was given, or "
               "prepare the texts again; if all ids in the file mean the same, zero_prepare "
               "--digest {} forgets the tokenizer",
               each.key, each.file.path(), made.vocabulary, made.hash, key, name, mark.vocabulary,
               mark.hash, each.file.path());
  }
}

}  // namespace zero
