// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What zero_generate plans of memory before it takes any, by config.json alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "inference/model_folder.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/deepspeed_inference.h"
#include "launch/generate/generate_flags.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(KeptMatrices, AreNamed) {
  const MatrixRoles two = parse_kept_matrices("head,embedding");
  EXPECT_TRUE(two.has(MatrixRole::head) && two.has(MatrixRole::embedding));
  EXPECT_FALSE(two.has(MatrixRole::qkv));
  EXPECT_EQ(two.text(), "embedding, head");
  EXPECT_THAT(error_of([] { parse_kept_matrices("hed"); }),
              HasSubstr("--keep: \"hed\" is no matrix of a model: did you mean head?; expected"));
  EXPECT_THAT(error_of([] { parse_kept_matrices("head,"); }), HasSubstr("\"\" is no matrix"));
}

TEST(TensorRanks, AreANumberOrAuto) {
  EXPECT_EQ(parse_tensor("4"), 4);
  EXPECT_EQ(parse_tensor("auto"), GenerateFlags::kAutoTensor);
  for (const char* const bad : {"0", "-1", "2x", "", "automatic"}) {
    EXPECT_THAT(error_of([&] { parse_tensor(bad); }), HasSubstr("expected auto, or 1 to")) << bad;
  }
}

/// Plans of a Llama whose folder holds its config.json and nothing else.
class AnswerPlans : public ::testing::Test {
 protected:
  AnswerPlans() {
    std::filesystem::copy(ZERO_RECORDED_FILES "/llama_tiny/config.json", folder_.path());
    flags_.plan = true;
  }
  AnswerPlan plan(std::vector<RequestLength> requests, int world = 1,
                  std::optional<std::int64_t> available = {}) {
    told_.clear();
    return plan_answers({.flags = flags_,
                         .folder = folder_.path(),
                         .requests = std::move(requests),
                         .world = world,
                         .available = available,
                         .tell = [this](const std::string& line) { told_ += line + "\n"; }});
  }
  std::string refusal(int world = 1) {
    return error_of([&] { (void)plan({{5, 5}}, world); });
  }

  Scratch folder_;
  GenerateFlags flags_;
  std::string told_;
};

// Two layers of two heads of keys and values, 8 wide: 16 tokens in fp32 are 2 x 2 x 2 x 8 x 16 x 4
// = 4,096 bytes.
constexpr std::int64_t kBlockBytes = 4096;

TEST_F(AnswerPlans, HaveTheCacheThatRequestsNeedAtOnce) {
  flags_.requests = 2;
  const AnswerPlan two = plan({{1, 15}, {1, 63}});
  EXPECT_EQ(two.demand.contiguous, 8);
  EXPECT_EQ(two.memory.blocks, 4) << "the short one ends before the long one's second block";
  EXPECT_EQ(two.memory.cache, 4 * kBlockBytes);
  EXPECT_THAT(told_, HasSubstr("2 reserved for the longest of each would take 32.00 KiB (50 %)"));
  flags_.cache_tokens = 1000;
  EXPECT_EQ(plan({{1, 15}, {1, 63}}).memory.blocks, 63) << "kept for prefixes";
  EXPECT_THAT(told_, HasSubstr("--cache-tokens 1000: requests need 64 at once; the rest keeps"));
  flags_.cache_tokens = 63;
  EXPECT_THAT(error_of([&] {
                (void)plan({{1, 63}});
              }),
              HasSubstr("--cache-tokens is 63; expected at least 64, for the longest"));
}

TEST_F(AnswerPlans, DealRequestsOutToGroupsOfRanks) {
  const std::vector<RequestLength> requests{{1, 63}, {1, 15}, {1, 63}, {1, 15}};
  const AnswerPlan plan_of_two = plan(requests, 2);
  EXPECT_EQ(plan_of_two.options.requests, 2);
  EXPECT_EQ(plan_of_two.demand.all, 8) << "the first rank has both long ones";
  flags_.tensor = 2;
  EXPECT_EQ(plan(requests, 2).demand.all, 10) << "one group has all";
}

TEST_F(AnswerPlans, GiveTheCacheWhatALimitLeaves) {
  const std::vector<RequestLength> requests(40, {1, 63});
  flags_.requests = 4;
  const AnswerPlan usual = plan(requests);
  ASSERT_EQ(usual.memory.blocks, 16);
  const std::int64_t rest = usual.memory.total() - usual.memory.cache;
  flags_.memory_limit = rest + 20 * kBlockBytes + 4095;
  EXPECT_EQ(plan(requests).memory.blocks, 20);
  flags_.memory_limit = rest + 9 * kBlockBytes;
  EXPECT_EQ(plan(requests).memory.blocks, 9);
  EXPECT_THAT(told_, HasSubstr("9 of the 16 blocks that requests can need at once"));
  flags_.memory_limit = std::int64_t{1} << 33;
  EXPECT_EQ(plan(requests).memory.blocks, 160) << "all that 40 requests of 4 blocks can fill";
  flags_.memory_limit = rest + 4 * kBlockBytes;
  EXPECT_EQ(plan(requests).shortage, "");
  --flags_.memory_limit;
  EXPECT_THAT(
      plan(requests).shortage,
      AllOf(HasSubstr("--memory-limit "), HasSubstr("short by 1 B"), HasSubstr("--weights int8: "),
            HasSubstr("which fits"), HasSubstr("--cache-dtype int8"), HasSubstr("more ranks")));
}

TEST_F(AnswerPlans, TakeTheFirstWeightsThatFit) {
  const std::vector<RequestLength> requests{{1, 63}};
  std::vector<std::int64_t> bytes;
  for (const auto& [dtype, weights] :
       {std::pair("fp32", "dtype"), {"bf16", "dtype"}, {"bf16", "int8"}, {"bf16", "nf4"}}) {
    flags_.dtype = dtype;
    flags_.weights = weights;
    bytes.push_back(plan(requests).memory.total());
  }
  flags_.dtype = "fp32";
  flags_.weights = "auto";
  const auto chosen = [&](std::int64_t limit) {
    flags_.memory_limit = limit;
    const AnswerPlan of = plan(requests);
    return std::string(name_of(of.options.dtype)) + " " + std::string(name_of(of.options.weights));
  };
  ASSERT_TRUE(std::ranges::is_sorted(bytes, std::ranges::greater()));
  EXPECT_EQ(chosen(bytes[0]), "fp32 dtype");
  EXPECT_EQ(chosen(bytes[0] - 1), "bf16 dtype");
  EXPECT_THAT(told_, HasSubstr("--weights auto: bf16, the first that fits"));
  EXPECT_EQ(chosen(bytes[1] - 1), "bf16 int8");
  EXPECT_EQ(chosen(bytes[2] - 1), "bf16 nf4");
  flags_.given = {"--dtype"};
  EXPECT_EQ(chosen(bytes[0] - 1), "fp32 int8") << "--dtype is as it was given";
  flags_.memory_limit = 0;
  EXPECT_THAT(refusal(), HasSubstr("--weights auto: how much memory the device has is not known"));
  EXPECT_EQ(plan(requests, 1, bytes[0]).options.weights, WeightFormat::plain);
}

TEST_F(AnswerPlans, TakeTheFewestTensorRanksThatFit) {
  const std::vector<RequestLength> requests(8, {1, 63});
  std::vector<std::int64_t> bytes;
  for (const int tensor : {1, 2}) {
    flags_.tensor = tensor;
    bytes.push_back(plan(requests, 2).memory.total());
  }
  // Windows are half as large, and so is the cache of all eight.
  ASSERT_LT(bytes[1], bytes[0]);
  flags_.tensor = GenerateFlags::kAutoTensor;
  flags_.memory_limit = bytes[0];
  EXPECT_EQ(plan(requests, 2).ranks.shape.tensor, 1);
  EXPECT_THAT(told_, HasSubstr("--tensor auto: 1, the first that fits"));
  flags_.memory_limit = bytes[0] - 1;
  EXPECT_EQ(plan(requests, 2).ranks.shape.tensor, 2);
}

TEST_F(AnswerPlans, AreTheSmallestAndSaySoWhereNoneFits) {
  const std::vector<RequestLength> requests{{1, 63}};
  flags_.memory_limit = 1000;
  flags_.weights = "auto";
  flags_.tensor = GenerateFlags::kAutoTensor;
  const AnswerPlan smallest = plan(requests, 2);
  EXPECT_THAT(told_, HasSubstr(", --tensor auto: 2, the smallest; none fits\n"));
  EXPECT_THAT(told_, Not(HasSubstr("the first that fits")));
  EXPECT_NE(smallest.shortage, "");
  flags_.dtype = "bf16";
  for (const char* const weights : {"dtype", "int8", "nf4", "q4"}) {
    for (const int tensor : {1, 2}) {
      flags_.weights = weights;
      flags_.tensor = tensor;
      EXPECT_LE(smallest.of_device(), plan(requests, 2).of_device()) << weights << " " << tensor;
    }
  }
}

TEST_F(AnswerPlans, TellThatBf16WouldHoldMoreRequests) {
  flags_.weights = "q4";
  // A request of four blocks takes 16 KiB in fp32: fewer than 64 fit, and in bf16 more.
  flags_.memory_limit = 1 << 20;
  const auto text = [this] { return plan_text(plan({{1, 63}}), flags_); };
  const std::string open = text();
  flags_.given = {"--dtype"};
  EXPECT_THAT(text(), Not(HasSubstr("--dtype bf16"))) << "fp32 is what was asked for";
  flags_.dtype = "bf16";
  const std::string narrow = text();
  const std::size_t end = narrow.find(" requests of 64 tokens at once on");
  const std::size_t begin = narrow.find(", or ") + 5;
  ASSERT_LT(begin, end);
  EXPECT_THAT(open, HasSubstr("\n--dtype bf16 would hold " + narrow.substr(begin, end - begin) +
                              " requests\n"));
  flags_.given = {};
  flags_.dtype = "fp32";
  flags_.memory_limit = 1 << 30;
  EXPECT_THAT(text(), AllOf(HasSubstr("or 512 requests"), Not(HasSubstr("--dtype bf16"))))
      << "no more can be asked for";
}

TEST_F(AnswerPlans, KeepMatricesOutOfCodes) {
  flags_.weights = "nf4";
  const std::int64_t all = plan({{5, 5}}).memory.weights;
  flags_.keep = parse_kept_matrices("head");
  // A head of 61 tokens of width 24, in fp32 tiles of 32 columns.
  EXPECT_GT(plan({{5, 5}}).memory.weights, all);
  flags_.weights = "dtype";
  EXPECT_THAT(refusal(), HasSubstr("--keep head: no matrix becomes codes; leave it out, or give"));
}

TEST_F(AnswerPlans, HaveAsManyWindowsAsAreAskedFor) {
  const std::int64_t two = plan({{5, 5}, {5, 5}}, 2).memory.windows;
  flags_.windows = 1;
  EXPECT_EQ(2 * plan({{5, 5}, {5, 5}}, 2).memory.windows, two);
  EXPECT_THAT(refusal(),
              HasSubstr("--windows 1: windows hold blocks whose weights ranks share, and "
                        "no two of 1 rank share any"));
  flags_.windows = 0;
  // A block has 24 x (64 + 32 + 80 + 40) = 5,184 elements of matrices.
  flags_.sharded.prefetched = 0;
  EXPECT_EQ(plan({{5, 5}, {5, 5}}, 2).options.windows, 1);
  flags_.sharded.prefetched = 5184 + 1;
  EXPECT_EQ(plan({{5, 5}, {5, 5}}, 2).options.windows, 3);
  flags_.sharded.live = 2 * 5184;
  EXPECT_EQ(plan({{5, 5}, {5, 5}}, 2).options.windows, 2);
}

TEST_F(AnswerPlans, ArePrintedAsARowForRanksThatTakeTheSame) {
  const std::string text = plan_text(plan({{1, 63}, {1, 63}}, 2, std::int64_t{1} << 30), flags_);
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 1 x 2 x 1 (replicate x shard x tensor), each of a CPU"),
                          HasSubstr("weights      windows        cache  activations"),
                          HasSubstr("cache: 4 blocks of 16 tokens, 100 % of the 4 that 1 of"),
                          HasSubstr("fits 1.00 GiB (free memory of this host for a rank), of "
                                    "which ")));
  EXPECT_THAT(plan_text(plan({{1, 63}}), flags_), HasSubstr("--memory-limit 8GiB compares"));
}

TEST_F(AnswerPlans, ThatTakeMoreThanIsFreeDoNotFit) {
  const AnswerPlan large = plan({{1, 63}}, 1, 1000);
  EXPECT_THAT(large.shortage, HasSubstr("free memory 1000 B: a rank takes "));
  EXPECT_THAT(plan_text(large, flags_), HasSubstr("does not fit: free memory 1000 B"));
  flags_.plan = false;
  std::filesystem::copy(ZERO_RECORDED_FILES "/llama_tiny/model.safetensors", folder_.path());
  EXPECT_EQ(plan({{1, 63}}, 1, 1000).shortage, "") << "a run tries";
}

// 10^9 tokens of 4,096 / 16 = 256 B: 238.42 GiB; 2^40 of them: 256 TiB. Tables of their blocks
// would take GBs.
TEST_F(AnswerPlans, CompareTokensOfACacheWithTheLimitFirst) {
  flags_.memory_limit = std::int64_t{10} << 20;
  flags_.cache_tokens = 1'000'000'000;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("--cache-tokens 1000000000: takes 238.42 GiB of a rank, "
                                         "256 B a token; expected at most 10.00 MiB, "
                                         "--memory-limit")));
  flags_.cache_tokens = std::int64_t{1} << 40;
  EXPECT_THAT(refusal(), HasSubstr("--cache-tokens 1099511627776: takes 256.00 TiB of a rank"));
  flags_.weights = "auto";
  EXPECT_THAT(refusal(), HasSubstr("128.00 TiB of a rank, 128 B a token")) << "in bf16";
  flags_.weights = "";
  flags_.cache_tokens = 0;
  flags_.host_cache_tokens = InferenceOptions::kMostHostTokens;  // 2^28
  EXPECT_THAT(refusal(),
              HasSubstr("--host-cache-tokens 268435456: takes 64.00 GiB of a rank, 256 B "
                        "a token; expected at most 10.00 MiB, --memory-limit"));
  flags_.memory_limit = 0;
  EXPECT_THAT(error_of([&] {
                (void)plan({{5, 5}}, 1, std::int64_t{1} << 30);
              }),
              HasSubstr("expected at most 1.00 GiB, the free memory"));
}

TEST_F(AnswerPlans, TellTheHostCacheAndWhatHelpsBesideIt) {
  const std::vector<RequestLength> requests{{1, 63}};
  const std::int64_t weights = plan(requests).memory.weights;
  flags_.memory_limit = std::int64_t{10} << 20;
  flags_.host_cache_tokens = 40'960;  // 2,560 blocks: 10 MiB
  const std::string shortage = plan(requests).shortage;
  EXPECT_THAT(shortage, AllOf(HasSubstr(", host cache of 40960 tokens 10.00 MiB, the rest "),
                              HasSubstr("no --host-cache-tokens: "), HasSubstr("which fits")));
  // 20 MiB is short by more than 10 MiB, of which weights are no twentieth.
  flags_.cache_tokens = 40'000;
  flags_.host_cache_tokens = 40'000;
  ASSERT_LT(weights, std::int64_t{9} * (1 << 20) / 20);
  const std::string two = plan(requests).shortage;
  EXPECT_THAT(two, AllOf(HasSubstr("no --host-cache-tokens"), HasSubstr("fewer --cache-tokens"),
                         Not(HasSubstr("--weights")), Not(HasSubstr("more ranks"))));
}

TEST_F(AnswerPlans, HaveBlocksUpToTheContext) {
  const std::int64_t context = read_hf_model(folder_.path()).shape.context;
  const std::int64_t most = (context + 15) / 16 * 16;
  flags_.block_tokens = most;
  EXPECT_EQ(plan({{5, 5}}).memory.block_tokens, most);
  for (const std::int64_t bad : {most + 16, std::int64_t{1} << 62, std::int64_t{0}}) {
    flags_.block_tokens = bad;
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("--block-tokens {}: expected a multiple of 16 up "
                                                 "to {}: the model has a context of {} tokens",
                                                 bad, most, context)));
  }
}

/// Files for DeepSpeed's inference.
class DeepSpeedInference : public ::testing::Test {
 protected:
  std::vector<std::string> apply(const std::string& text) {
    return apply_deepspeed_inference(folder_.write("ds.json", text), flags_);
  }
  std::string refusal(const std::string& text) {
    return error_of([&] { apply(text); });
  }

  Scratch folder_;
  GenerateFlags flags_;
};

// The example that transformers' documentation gives, without its offload.
TEST_F(DeepSpeedInference, OfZeroInferenceTakesEffect) {
  const std::vector<std::string> lines = apply(R"({
      "fp16": {"enabled": false}, "bf16": {"enabled": true},
      "zero_optimization": {"stage": 3, "offload_param": {"device": "none"}, "overlap_comm": true,
        "contiguous_gradients": true, "reduce_bucket_size": 1048576,
        "stage3_prefetch_bucket_size": 943718.4, "stage3_param_persistence_threshold": 10240},
      "steps_per_print": 2000, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
      "wall_clock_breakdown": false})");
  EXPECT_EQ(flags_.dtype, "bf16");
  EXPECT_EQ(flags_.sharded.stage, 3);
  EXPECT_EQ(flags_.sharded.prefetched, 943718.4);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("ds.json: --dtype bf16"), HasSubstr("(stage 3)"),
                              HasSubstr("--windows by stage3_prefetch_bucket_size 943718.4")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("changes nothing here: "),
                              HasSubstr("zero_optimization.reduce_bucket_size (nothing is reduced"),
                              HasSubstr("train_batch_size"), Not(HasSubstr("offload_param.dev"))));
}

TEST_F(DeepSpeedInference, OfInitInferenceTakesEffect) {
  apply(R"({"dtype": "torch.half", "tp": {"tp_size": 4}, "replace_with_kernel_inject": true})");
  EXPECT_EQ(flags_.dtype, "fp16");
  EXPECT_EQ(flags_.tensor, 4);
  apply(R"({"dtype": "int8", "zero": {"stage": 0}})");
  EXPECT_EQ(flags_.weights, "int8");
  EXPECT_EQ(replicas_of(flags_, 8, 4), 2) << "stage 0: each tensor group keeps all";
}

TEST_F(DeepSpeedInference, ComesBehindTheCommandLine) {
  flags_.given = {"--dtype", "--replicate"};
  const std::vector<std::string> lines =
      apply(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}})");
  EXPECT_EQ(flags_.dtype, "fp32");
  EXPECT_EQ(replicas_of(flags_, 8, 1), 1);
  EXPECT_THAT(lines[0], HasSubstr("--dtype of the command line instead of bf16"));
}

TEST_F(DeepSpeedInference, IsRefusedByNameAllAtOnce) {
  const std::string errors = refusal(
      R"({"zero_optimisation": {"stage": 3}, "zero_optimization": {"stage3_prefetch_bucket": 1,
          "offload_param": {"device": "cpu"}, "stage": 4}, "optimizer": {"type": "Adam"},
          "quant": {"enabled": true}, "gradient_clipping": 1.0})");
  EXPECT_THAT(errors, HasSubstr("unknown key \"zero_optimisation\"; did you mean "
                                "\"zero_optimization\"?"));
  EXPECT_THAT(errors, HasSubstr("did you mean \"zero_optimization.stage3_prefetch_bucket_size\"?"));
  EXPECT_THAT(errors, HasSubstr("zero_optimization.offload_param.device: found \"cpu\"; weights "
                                "stay in device memory"));
  EXPECT_THAT(errors, HasSubstr("zero_optimization.stage: found 4, expected a whole number"));
  EXPECT_THAT(errors, HasSubstr("optimizer: found "));
  EXPECT_THAT(errors, HasSubstr("quant: found "));
  EXPECT_THAT(errors, HasSubstr("unknown key \"gradient_clipping\": it is training's"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 2}})"),
              HasSubstr("zero_optimization.stage: found 2, which shards gradients and optimizer"));
  EXPECT_THAT(refusal(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})"),
              HasSubstr("bf16.enabled and fp16.enabled are both true"));
  EXPECT_THAT(refusal(R"({"dtype": "fp8"})"), HasSubstr("dtype: found \"fp8\", expected fp32"));
  EXPECT_THAT(refusal(R"({"bf16": true})"),
              EndsWith("bf16: found true, expected an object of settings, as {\"enabled\": ...}"));
  EXPECT_THAT(refusal(R"({"zero_optimization": []})"),
              EndsWith("zero_optimization: found [], expected an object of settings, as "
                       "{\"stage\": ...}"));
  EXPECT_THAT(refusal(R"({"zero": {"offload_param": "none"}})"),
              EndsWith("zero.offload_param: found \"none\", expected an object of settings, as "
                       "{\"device\": ...}"));
  EXPECT_THAT(apply(R"({"bf16": null})"), IsEmpty());
  EXPECT_THAT(refusal("[1]"), HasSubstr("found [1], expected an object"));
  EXPECT_THAT(apply("{}"), IsEmpty());
}

}  // namespace
}  // namespace zero::testing
