// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <string>

#include "base/error.h"
#include "launch/data/prepare.h"
#include "launch/process/command_line.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace {

int run(const zero::PrepareOptions& options) {
  int error = 0;
  zero::Console console(stdout, zero::output_mode(),
                        {.failed = [&error](int why) { error = why; }});
  const zero::PrepareReport report = zero::prepare(options, console);
  console.line(
      fmt::format("{} of text -> {} training tokens in {} file(s) and {} validation tokens, in {}",
                  zero::size_text(report.text_bytes), report.train_tokens,
                  report.train_files.size(), report.validation_tokens, options.out));
  std::string around;
  if (!report.before.empty()) around += fmt::format(", before each the token {}", report.before);
  if (!report.behind.empty()) around += fmt::format(", behind each the token {}", report.behind);
  if (!around.empty()) {
    console.line(fmt::format("{} document(s){}", report.documents, around));
  } else if (report.documents > 1) {
    console.line(
        fmt::format("{} documents follow each other without a token between: the tokenizer's files "
                    "name no end of a text",
                    report.documents));
  }
  console.line(
      fmt::format("in the configuration: \"data\": {{\"train\": \"{}\"{}}}, \"model\": {{..., "
                  "\"vocabulary\": {}}}",
                  options.out,
                  report.validation_file.empty()
                      ? ""
                      : fmt::format(", \"validation\": \"{}\"", report.validation_file),
                  report.vocabulary));
  ZERO_CHECK(error == 0, "standard output: cannot write: {}; the token files are written",
             std::strerror(error));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Turns texts into token shards (llm.c's .bin format) for zero_train.",
               "zero_prepare"};
  zero::PrepareOptions options;
  app.add_option("files", options.files, "texts, in this order")->required();
  CLI::Option* out =
      app.add_option("--out", options.out,
                     "folder for train_*.bin and validation.bin, whose last set is replaced");
  bool digests = false;
  CLI::Option* digest = app.add_flag("--digest", digests,
                                     "FILES are token files: write the digest of each beside it, "
                                     "and nothing else; digests among FILES are passed over");
  digest->excludes(out);
  app.add_option("--tokenizer", options.tokenizer,
                 "\"bytes\" (vocabulary 256), a SentencePiece .model, a tokenizer.json, or a "
                 "folder with one")
      ->capture_default_str();
  app.add_option("--validation", options.validation,
                 "part of the text, from its end, kept for validation")
      ->capture_default_str();
  app.add_flag("--special", options.special,
               "special tokens written in the texts, as <|endoftext|>, are tokens, not words");
  app.add_flag(
      "--no-bos", options.no_bos,
      "no token before a document, as <s>, even where the tokenizer puts one before a text");
  app.add_option("--json-field", options.json_field,
                 "FILES have a JSON object a line, whose member of this name is a document");
  app.add_option("--shard-tokens", options.shard_tokens, "tokens of a train shard, at most")
      ->capture_default_str();
  return zero::run_program(app, argc, argv, {}, [&] {
    if (digests) {
      for (const std::string& path : zero::make_digests(options.files)) zero::print(path + "\n");
      return 0;
    }
    if (out->count() == 0) throw CLI::RequiredError("--out");
    return run(options);
  });
}
