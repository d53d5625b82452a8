// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "launch/config/train_config.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// The lines of `text`.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

/// A file, then, behind a NUL, what --set says, a line each.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zero;
  return fuzz::may_refuse([&] {
    const std::string_view input = fuzz::text_of(data, size);
    const std::size_t end = std::min(input.find('\0'), input.size());
    std::vector<std::string> overrides = lines_of(input.substr(std::min(end + 1, input.size())));
    // Otherwise asked of the machine, which is slow and not the same everywhere.
    overrides.insert(overrides.end(), {"run.device=cpu", "run.threads=1"});
    const TrainConfig config =
        make_train_config(Configuration::from_json(parse_json_text(input.substr(0, end), "c.json"),
                                                   "c.json", overrides),
                          4, 2);
    config.values.dump();
    config.values.note();
    config.values.effective();
    for (const std::int64_t step : {std::int64_t{1}, std::int64_t{100}, config.run.steps}) {
      if (step >= 1) config.learning_rates.at(step);
    }
    fuzz::expect(
        config.batch.train == config.batch.micro * config.batch.accumulation * config.data_ranks(),
        "the sizes of a batch fit together");
  });
}
