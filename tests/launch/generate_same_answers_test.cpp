// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "device/device.h"
#include "ops/ops.h"
#include "tests/launch/generate_fixture.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace testing;

// Of the cache, the batches and the guesses no answer depends.
TEST_F(Generate, AnAnswerDoesNotDependOnHowItIsComputed) {
  std::string prompts;
  for (int i = 0; i < 12; ++i) {
    prompts += nlohmann::json{{"prompt", std::string(kSentence).substr(0, 34 + i / 2)},
                              {"temperature", i % 3 == 0 ? 0.0 : 1.5},
                              {"max_tokens", 50},
                              {"priority", i % 2},
                              {"seed", i}}
                   .dump() +
               "\n";
  }
  const std::string file = "--file " + folder_.write("p.jsonl", prompts) + " ";
  const std::string expected = text(file + "--requests 1");
  const auto errors_of = [&](const std::string& arguments) {
    const Outcome outcome = generate(file + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(outcome.out, expected) << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(errors_of(""),
              ContainsRegex("[1-9][0-9]+ tokens were found in the cache, 0 requests"));
  EXPECT_THAT(errors_of("--cache-tokens 112"),
              ContainsRegex("cache 56.00 KiB .7 blocks of 16 tokens: 1 request of 89 tokens"));
  // More than they need at once is kept for beginnings that come again.
  EXPECT_THAT(errors_of("--requests 3 --cache-tokens 1600"),
              ContainsRegex(".100 blocks of 16 tokens: 3 requests of 89 tokens"));
  for (const char* const blocks : {"--block-tokens 32", "--block-tokens 96 --cache-tokens 96",
                                   "--block-tokens 16 --memory-limit 1MiB --requests 12"}) {
    EXPECT_THAT(errors_of(blocks), ContainsRegex("memory: .* planned")) << blocks;
  }
  EXPECT_THAT(errors_of("--cache-tokens 160 --requests 12"),
              ContainsRegex("cache, [1-9][0-9]* requests were preempted"));
  EXPECT_THAT(
      errors_of("--cache-tokens 160 --requests 12 --host-cache-tokens 640"),
      ContainsRegex("at once., 320.00 KiB in host memory .40 blocks., activations(.|\n)*requests "
                    "were preempted\n[1-9][0-9]* cache blocks moved to host memory, [1-9][0-9]* "
                    "moved back\n"));
  EXPECT_THAT(errors_of("--draft prompt --draft-tokens 6"),
              ContainsRegex("[1-9][0-9]* of [0-9]+ guessed tokens were right \\([0-9]+ %\\)"));
  EXPECT_THAT(
      errors_of("--cache-tokens 200 --draft " + Generate::file("checkpoints")),
      AllOf(ContainsRegex("draft: model of 3[0-9.]+k parameters(.|\n)*guessed tokens were right"),
            ContainsRegex("memory: .* planned .(99|100) %.; cache")));
}

// Ranks share the weights and answer other prompts, or compute each layer together.
TEST_F(Generate, SeveralRanksAnswerAsOneDoes) {
  std::string prompts;
  for (int i = 0; i < 7; ++i) {
    prompts += nlohmann::json{{"prompt", std::string(kSentence).substr(0, 1 + 3 * i)},
                              {"temperature", i % 2 == 0 ? 0.0 : 0.9},
                              {"max_tokens", 10 + 9 * i},
                              {"stop", {"ran"}},
                              {"seed", i}}
                   .dump() +
               "\n";
  }
  prompts += "{\"ids\": [999]}\n";
  const std::string file = "--file " + folder_.write("p.jsonl", prompts) + " ";
  // But for the cache's size, which follows from how many requests a rank has.
  const auto complaints = [](const Outcome& outcome) {
    std::vector<std::string> lines = outcome.complaints("zero_generate");
    std::erase_if(
        lines, [](const std::string& line) { return line.find("cache: ") != std::string::npos; });
    return lines;
  };
  const Outcome one = generate(file);
  EXPECT_EQ(one.status, 1);
  for (const char* const ranks :
       {"--local-ranks 2", "--local-ranks 4 --weights dtype --requests 1",
        "--local-ranks 9 --draft prompt", "--local-ranks 4 --replicate 2",
        "--local-ranks 2 --tensor 2", "--local-ranks 4 --tensor 2 --draft-tokens 2 --draft prompt",
        "--local-ranks 2 --tensor 2 --cache-tokens 96 "
        "--host-cache-tokens 99"}) {
    const Outcome several = generate(file + ranks);
    EXPECT_EQ(several.status, 1) << ranks << several.errors;
    EXPECT_EQ(several.out, one.out) << ranks;
    EXPECT_EQ(complaints(several), complaints(one)) << ranks;
    EXPECT_THAT(several.errors, ContainsRegex("parameters, each rank: weights")) << ranks;
    EXPECT_THAT(several.errors, ContainsRegex("the first of [249] ranks waited [0-9.]+ s for"));
  }
  EXPECT_EQ(lines("--prompt The --local-ranks 3 --max-tokens 9")[0]["ids"],
            lines("--prompt The --max-tokens 9")[0]["ids"]);
  EXPECT_THAT(generate("--prompt a --local-ranks 3 --tensor 2").errors, HasSubstr("3"));
  EXPECT_THAT(generate("--prompt a --local-ranks 2 --device cuda").errors,
              HasSubstr("--device cuda: 2 ranks; expected one"));
  EXPECT_THAT(generate("--compare " + folder_.write("t.txt", "text") + " --local-ranks 2").errors,
              HasSubstr("--compare is measured by one rank; found 2"));
}

TEST_F(Generate, CtrlCEndsAllRanks) {
  const Outcome outcome =
      shell(folder_, "bash -c 'env --default-signal=INT " + command() +
                         "--threads 1 --local-ranks 3 --file " + long_file() + " & while [ ! -s " +
                         folder_.path("stdout.txt") +
                         " ] && kill -0 $!; do sleep 0.05; done; kill -INT $!; wait $!; exit $?'");
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  EXPECT_NE(outcome.out, "");
}

// A process that is stopped is named by the one that waits for it, and answers once it goes on.
TEST_F(Generate, NamesARankThatDoesNotCome) {
  const int port = 29400 + static_cast<int>(::getpid() % 300);
  const auto rank = [&](int number) {
    return fmt::format(
        "env RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1} {2} --threads 1 --collective-warning 0.3 --file {3} & r{0}=$!\n",
        number, port, command(), long_file());
  };
  folder_.write("job.sh", rank(0) + rank(1) + "while [ ! -s " + folder_.path("stdout.txt") +
                              " ] && kill -0 $r0; do sleep 0.05; done; kill -STOP $r1\n" +
                              "while ! grep -q 'is stopped' " + folder_.path("stderr.txt") +
                              " && kill -0 $r0; do sleep 0.05; done; kill -CONT $r1\n" +
                              "kill -TERM $r0; wait $r0; first=$?; wait $r1; echo $first $? >" +
                              folder_.path("status"));
  const Outcome outcome = shell(folder_, "bash " + folder_.path("job.sh"));
  EXPECT_EQ(folder_.read("status"), "143 143\n") << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("zero_generate: warning: .rank 0. .*: waiting for "
                                            "[0-9.]+ m?s for rank 1 .process [0-9]+ is stopped."));
}

// Of two processes the second alone is told to end.
TEST_F(Generate, ASignalToAnyRankEndsAll) {
  const int port = 29100 + static_cast<int>(::getpid() % 300);
  const auto rank = [&](int number) {
    return fmt::format(
        "env RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1} {2} --threads 1 --file {3} & r{0}=$!\n",
        number, port, command(), long_file());
  };
  folder_.write("job.sh", rank(0) + rank(1) + "while [ ! -s " + folder_.path("stdout.txt") +
                              " ] && kill -0 $r0; do sleep 0.05; done; kill -TERM $r1\n" +
                              "wait $r1; second=$?; wait $r0; echo $? $second >" +
                              folder_.path("status"));
  const Outcome outcome = shell(folder_, "bash " + folder_.path("job.sh"));
  EXPECT_EQ(folder_.read("status"), "143 143\n") << outcome.errors;
  EXPECT_NE(outcome.out, "");
}

// Kernels of bf16 store weights in orders of their own, which ranks would gather as theirs.
TEST_F(Generate, RanksWithOtherKernelsRefuseToAnswerTogether) {
  const int port = 20000 + static_cast<int>(::getpid() % 9000);
  const auto rank = [&](int number, const std::string& more) {
    return "env RANK=" + std::to_string(number) + " LOCAL_RANK=" + std::to_string(number) +
           " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
           std::to_string(port) + more + " " + command() + "--threads 1 --dtype bf16 --prompt The";
  };
  const auto kernels = make_ops(*cpu::open())->bits(DType::bf16);
  folder_.write("job.sh", rank(1, " ZERO_MAX_CPU_ISA=AVX512") + " &\n" + rank(0, "") +
                              "\nstatus=$?; wait; exit $status");
  const Outcome outcome = shell(folder_, "bash " + folder_.path("job.sh"));
  if (kernels.find("floats") != std::string::npos) {
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
  } else {
    EXPECT_EQ(outcome.status, 1) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("bits: "), HasSubstr(kernels)));
  }
}

}  // namespace
}  // namespace zero
