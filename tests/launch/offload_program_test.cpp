// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// zero_generate with blocks of weights in files.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/launch/generate_fixture.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Offload : public Generate {
 protected:
  std::string prompts() const {
    std::string all;
    for (int i = 0; i < 7; ++i) {
      all += nlohmann::json{{"prompt", std::string(kSentence).substr(0, 1 + 3 * i)},
                            {"temperature", i % 2 == 0 ? 0.0 : 0.9},
                            {"max_tokens", 10 + 9 * i},
                            {"seed", i}}
                 .dump() +
             "\n";
    }
    return "--file " + folder_.write("p.jsonl", all) + " ";
  }
  /// Answers with blocks in files of another folder, in which nothing stays.
  Outcome offloaded(const std::string& arguments) const {
    const Outcome outcome = generate("--offload-weights " + nvme_.path() + " " + arguments);
    EXPECT_THAT(nvme_.names(), IsEmpty()) << arguments;
    return outcome;
  }

  Scratch nvme_;
};

TEST_F(Offload, GivesTheSameAnswersOnAnyRanks) {
  const std::string file = prompts();
  const std::string expected = text(file);
  for (const char* const way :
       {"", "--windows 1", "--draft prompt --requests 2", "--cache-tokens 112 --requests 3",
        "--local-ranks 2", "--local-ranks 3 --windows 1", "--local-ranks 4 --replicate 2"}) {
    const Outcome outcome = offloaded(file + way);
    EXPECT_EQ(outcome.status, 0) << way << outcome.errors;
    EXPECT_EQ(outcome.out, expected) << way;
    EXPECT_THAT(outcome.errors,
                AllOf(ContainsRegex("parameters.*: weights [0-9.]+ KiB beside [0-9.]+ [KM]iB in a "
                                    "file, cache "),
                      ContainsRegex(fmt::format("blocks of weights.* are in a file in {} through ",
                                                nvme_.path())),
                      ContainsRegex("memory.*: .* planned .(99|100) %.; cache"),
                      ContainsRegex("\nblocks from the disk( of the first rank)?: [0-9.]+ [kM]B a "
                                    "pass at [0-9.]+ [kMG]?B/s, .* s; a pass of .* tokens took ")))
        << way;
  }
  for (const char* const format : {"int8", "nf4", "q4"}) {
    const std::string weights = fmt::format("{} --dtype bf16 --weights {} ", file, format);
    EXPECT_EQ(offloaded(weights).out, text(weights)) << format;
    EXPECT_EQ(offloaded(weights + "--local-ranks 2").out, text(weights)) << format;
  }
}

TEST_F(Offload, MeansTheSameInADeepSpeedFile) {
  const std::string config = folder_.write(
      "ds.json", R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme",
                     "nvme_path": ")" +
                     nvme_.path() + R"("}}, "aio": {"queue_depth": 2}})");
  const Outcome outcome = generate("--prompt 'A dog' --max-tokens 12 --config " + config);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, text("--prompt 'A dog' --max-tokens 12"));
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("--offload-weights " + nvme_.path()),
                                    HasSubstr("blocks from the disk: ")));
}

TEST_F(Offload, IsPlannedWithoutTheFolder) {
  const Outcome plan =
      generate("--plan --offload-weights /nowhere --local-ranks 2 --memory-limit 1GB");
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.out, AllOf(ContainsRegex("total +file\n"),
                              HasSubstr("a rank's part of the blocks, in /nowhere, beside")));
}

TEST_F(Offload, IsRefusedBeforeWeightsAreRead) {
  const std::string usual = "--prompt The --offload-weights ";
  for (const char* const ranks : {"", " --local-ranks 3"}) {
    EXPECT_THAT(refusal(usual + nvme_.path("none") + ranks),
                AllOf(HasSubstr("--offload-weights: " + nvme_.path("none") + " is not there; make"),
                      Not(HasSubstr("[rank "))));
  }
  EXPECT_THAT(refusal(usual + "''"), HasSubstr("--offload-weights: expected a name"));
  EXPECT_THAT(refusal("--compare " + folder_.write("t.txt", kSentence) + " --offload-weights x"),
              HasSubstr("found --offload-weights too: leave it out"));
  EXPECT_THAT(nvme_.names(), IsEmpty());
}

TEST_F(Offload, KnowsTheLongestFileThatAProcessMayWrite) {
  const Outcome outcome =
      shell(folder_, "sh -c 'ulimit -f 8; exec " + command() +
                         "--threads 1 --prompt The --offload-weights " + nvme_.path() + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("--offload-weights: a rank's file takes "),
                    HasSubstr("(RLIMIT_FSIZE, ulimit -f); raise that limit, use more hosts")));
  EXPECT_THAT(nvme_.names(), IsEmpty());
}

}  // namespace
}  // namespace zero::testing
