// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "launch/plan/model_choice.h"
#include "tests/launch/shell.h"
#include "weights/hf/config.h"

// zero_plan as users start it.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTiny = "layers=2,width=64,heads=4,context=64,vocabulary=256";
constexpr const char* kLlama =
    "family=llama,layers=2,width=128,heads=4,kv_heads=2,intermediate=192,context=256,"
    "vocabulary=512";

class ZeroPlan : public ::testing::Test {
 protected:
  Outcome plan(const std::string& arguments) const {
    return shell(folder_, fmt::format("{} {}", ZERO_PLAN, arguments));
  }
  /// Of training kTiny in one way.
  Outcome train(const std::string& arguments) const {
    return plan(
        fmt::format("--model {} --micro 1 --recompute none --moments fp32 --dtype bf16 "
                    "--top 1 {}",
                    kTiny, arguments));
  }
  std::int64_t written_limit(const std::string& name) const {
    return nlohmann::json::parse(folder_.read(name))["run"]["memory_limit"].get<std::int64_t>();
  }
  /// A folder of a config.json alone, whose matrices are codes.
  void write_codes(const nlohmann::json& quantization) const {
    nlohmann::json config = nlohmann::json::parse(hf_config_text(model_of(kLlama)));
    config["quantization_config"] = quantization;
    folder_.write("config.json", config.dump());
  }

  Scratch folder_;
};

constexpr std::int64_t kGib = std::int64_t{1} << 30;

TEST_F(ZeroPlan, LeavesPartOfAGpuToWhatNoPlanKnows) {
  const Outcome one = train("--gpus 1 --memory 24GiB --write " + folder_.path("one.json"));
  EXPECT_EQ(one.status, 0) << one.errors;
  EXPECT_THAT(one.out,
              AllOf(HasSubstr("1 host x 1 GPU of 25.77 GB (24.00 GiB), 1.07 GB (1.00 GiB) "
                              "of it kept free"),
                    HasSubstr("CUDA's context, its libraries, kernels and graphs, and NCCL "
                              "take for themselves; 1.07 GB (1.00 GiB) kept free for "
                              "that")));
  EXPECT_EQ(written_limit("one.json"), 23 * kGib);
  EXPECT_EQ(train("--gpus 2 --memory 24GiB --write " + folder_.path("two.json")).status, 0);
  EXPECT_EQ(written_limit("two.json"), 22 * kGib) << "and to NCCL";
  const Outcome all =
      train("--gpus 2 --memory 24GiB --reserve 0B --write " + folder_.path("all.json"));
  EXPECT_EQ(written_limit("all.json"), 24 * kGib);
  EXPECT_THAT(all.out, AllOf(HasSubstr("nothing is kept free for that (--reserve)"),
                             Not(HasSubstr("of it kept free"))));
}

TEST_F(ZeroPlan, SaysInJsonWhatIsNotCounted) {
  for (const bool inference : {false, true}) {
    const std::string question = inference ? fmt::format("--inference --model {}", kLlama)
                                           : fmt::format("--model {} --top 1", kTiny);
    const Outcome found = plan(question + " --gpus 1 --memory 8GiB --reserve 512MiB --json");
    ASSERT_EQ(found.status, 0) << found.errors;
    const auto json = nlohmann::json::parse(found.out);
    EXPECT_EQ(json["machine"]["reserve"], kGib / 2);
    EXPECT_EQ(json["machine"]["memory_source"], "given");
    EXPECT_THAT(json["planned_with"].get<std::string>(), HasSubstr("operations"));
    EXPECT_THAT(json["not_counted"].at(0).get<std::string>(),
                AllOf(HasSubstr("CUDA's context"), HasSubstr("536.87 MB (512.00 MiB) kept free")));
  }
}

TEST_F(ZeroPlan, OfAnswersReadsFoldersOfCodes) {
  const std::string cpu =
      folder_.write("cpu.json", R"({"devices": 1, "kind": "cpu", "memory": "1GB"})");
  const std::string question =
      fmt::format("--inference --model {} --cluster {}", folder_.path(), cpu);
  write_codes({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", true}});
  const Outcome gptq = plan(question);
  EXPECT_EQ(gptq.status, 0) << gptq.errors;
  EXPECT_THAT(gptq.out, AllOf(HasSubstr("u4 beside bf16"), HasSubstr("fits, ")));
  write_codes({{"quant_method", "zero"}, {"format", "nf4"}, {"version", 1}});
  const Outcome nf4 = plan(question);
  EXPECT_EQ(nf4.status, 0) << nf4.errors;
  EXPECT_THAT(nf4.out, HasSubstr("nf4 beside bf16"));
  const Outcome training = plan(fmt::format("--model {} --cluster {}", folder_.path(), cpu));
  EXPECT_EQ(training.status, 2);
  EXPECT_THAT(training.errors, HasSubstr("found codes of nf4, expected plain weights"));
}

// In builds without CUDA too.
TEST_F(ZeroPlan, OfAnswersKnowsWhichCodesAGpuRefuses) {
  const std::string question =
      fmt::format("--inference --model {} --gpus 1 --memory 8GB", folder_.path());
  write_codes({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", true}});
  const Outcome gptq = plan(question);
  EXPECT_EQ(gptq.status, 1);
  EXPECT_THAT(gptq.out,
              AllOf(HasSubstr("weights on a GPU: found u4, codes of a GPTQ or AWQ folder"),
                    HasSubstr("take --device cpu")));
  write_codes({{"quant_method", "zero"}, {"format", "nf4"}, {"version", 1}});
  EXPECT_EQ(plan(question).status, 0);
}

}  // namespace
}  // namespace zero::testing
