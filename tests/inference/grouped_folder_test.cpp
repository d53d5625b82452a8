// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Folders of GPTQ and AWQ answer as the folders of plain weights that hold the values of their
// codes.
#include <cmath>
#include <limits>

#include "inference/model_folder.h"
#include "inference/quantized_writer.h"
#include "tests/errors.h"
#include "tests/inference/grouped_model.h"
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kNoError = "no error";  // of error_of()

// A last group of 8 inputs, and one of 8 of 200.
DecoderShape short_groups() {
  return small_llama({{"kv_heads", 2}, {"head_width", 16}, {"intermediate", 200}});
}
DecoderShape whole_groups() {
  return small_llama(
      {{"width", 64}, {"heads", 8}, {"kv_heads", 4}, {"head_width", 32}, {"intermediate", 512}});
}

class GroupedFolder : public InferenceRanks {
 protected:
  /// Models are read from the codes from here on; their values are in `plain_`.
  GroupedModel save_codes(const DecoderShape& shape, const GroupedKind& kind) {
    save(shape);
    GroupedModel model(saved_, kind);
    model.write(coded_, plain_);
    folder_ = coded_;
    return model;
  }
  void save(const DecoderShape& shape) { with_saved_model(shape, saved_, 1); }
  Logits of(const std::string& folder, const InferenceOptions& with) {
    folder_ = folder;
    return alone(0, with);
  }
  /// The largest difference beside the largest logit.
  static float distance(const Logits& found, const Logits& expected) {
    EXPECT_EQ(found.size(), expected.size());
    float most = 0;
    float largest = 0;
    for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      most = std::max(most, std::abs(found[i] - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
    }
    EXPECT_GT(largest, 0);
    return most / largest;
  }
  std::string refusal() {
    return error_of([&] { ModelFolder folder(coded_); });
  }
  /// Of the folder's codes as `change` leaves them.
  std::string refusal_of(GroupedModel model, const std::function<void(TensorList&)>& change) {
    change(model.codes);
    model.write(coded_, plain_);
    return refusal();
  }
  std::string refusal_when_read() {
    const ModelFolder folder(coded_);
    const auto device = cpu::open();
    return error_of([&] { open_inference_model(*device, coded_, coded_options()); });
  }
  static InferenceOptions coded_options(DType dtype = DType::fp32) {
    return rank_options(dtype, WeightFormat::u4);
  }

  const std::string saved_ = folder_;
  const std::string coded_ = scratch_.path("coded/");
  const std::string plain_ = scratch_.path("plain/");
};

TEST_F(GroupedFolder, AnswersAsTheValuesOfItsCodes) {
  for (const DecoderShape& shape :
       {short_groups(), whole_groups(), as_qwen2(short_groups()), three_blocks_of_gpt2()}) {
    save(shape);
    for (const GroupedKind& kind :
         {GroupedKind{.symmetric = true, .group = 32}, GroupedKind{.group = 64},
          GroupedKind{.v2 = true, .group = 128}, GroupedKind{.group = -1},
          GroupedKind{.awq = true, .group = 32}, GroupedKind{.awq = true, .group = -1},
          GroupedKind{.awq = true, .symmetric = true, .group = 128}}) {
      GroupedModel(saved_, kind).write(coded_, plain_);
      EXPECT_EQ(stored_format(coded_), WeightFormat::u4);
      EXPECT_LT(distance(of(coded_, coded_options()), of(plain_, rank_options())), 1e-5F)
          << (kind.awq ? "awq" : "gptq") << " in groups of " << kind.group;
    }
  }
}

// Values are exact in fp32 and rounded to the compute dtype at most.
TEST_F(GroupedFolder, AnswersInSixteenBitsToo) {
  save_codes(short_groups(), {.group = 64});
  const Logits expected = of(plain_, rank_options());
  EXPECT_LT(distance(of(coded_, coded_options(DType::bf16)), expected), 0.05F);
  EXPECT_LT(distance(of(coded_, coded_options(DType::fp16)), expected), 0.01F);
}

TEST_F(GroupedFolder, GivesElementsOfMatricesAsTheFormulaDoes) {
  const GroupedModel model = save_codes(short_groups(), {.awq = true, .group = 32});
  const ModelFolder folder(coded_);
  const auto tensors = ModelWeights::tensors(folder.shape());
  const auto down = std::ranges::find_if(tensors, [](const LogicalTensor& tensor) {
    return tensor.name.find("down") != std::string::npos;
  });
  ASSERT_NE(down, tensors.end());
  const auto matrix = std::ranges::find_if(model.matrices, [](const auto& each) {
    return each.first.find("0.mlp.down_proj") != std::string::npos;
  });
  ASSERT_NE(matrix, model.matrices.end());
  const std::int64_t in = matrix->second.in;
  std::vector<float> values(static_cast<std::size_t>(2 * in + 5));
  folder.source().read(static_cast<std::size_t>(down - tensors.begin()), 3 * in + 7, values);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t element = 3 * in + 7 + i;
    ASSERT_EQ(values[static_cast<std::size_t>(i)], matrix->second.value(element % in, element / in))
        << element;
  }
}

TEST_F(GroupedFolder, GivesRanksThatShareWeightsTheBitsOfOneProcess) {
  save_codes(three_blocks_of_gpt2(), {.group = 32});
  std::vector<Logits> expected;
  for (int shard = 0; shard < 3; ++shard) expected.push_back(alone(shard, coded_options()));
  EXPECT_EQ(on_mesh({.shard = 3}, coded_options()), expected);
}

// Inputs of ranks begin at multiples of 128 and 256: with groups of 128 as in files, and of whole
// columns too.
TEST_F(GroupedFolder, IsCutForTensorRanks) {
  for (const std::int64_t group : {32, 128, 512, -1}) {
    for (const bool awq : {false, true}) {
      save_codes(whole_groups(), {.awq = awq, .group = group});
      const Logits expected = of(plain_, rank_options());
      folder_ = coded_;
      for (const Logits& found : on_mesh({.shard = 1, .tensor = 2}, coded_options())) {
        EXPECT_LT(distance(found, expected), 1e-5F) << group;
      }
    }
  }
}

TEST_F(GroupedFolder, IsNotCutInsideTheLeastGroup) {
  save_codes(short_groups(), {.group = 32});
  EXPECT_THAT(error_of([&] { on_mesh({.shard = 1, .tensor = 2}, coded_options()); }),
              HasSubstr("a rank's inputs begin at 48, in groups of 32 with one scale: expected a "
                        "multiple of 32; take fewer ranks in a tensor group"));
}

TEST_F(GroupedFolder, IsRefusedInAnotherFormatAndIsNotCodedAgain) {
  const GroupedModel model = save_codes(short_groups(), {.awq = true});
  for (const WeightFormat wanted : {WeightFormat::plain, WeightFormat::int8, WeightFormat::q4}) {
    EXPECT_THAT(error_of([&] { of(coded_, rank_options(DType::fp32, wanted)); }),
                HasSubstr(fmt::format("its matrices are codes of awq, of which no weights of {} "
                                      "can be made; expected no --weights, or the folder",
                                      name_of(wanted))));
  }
  EXPECT_THAT(
      error_of([&] { of(plain_, coded_options()); }),
      HasSubstr("its matrices are elements, of which no weights of u4 can be made; expected "
                "dtype, int8, nf4 or q4"));
  EXPECT_THAT(error_of([&] {
                const ModelFolder from(coded_);
                write_quantized(from, {}, 1, files::disk(), scratch_.path("again.safetensors"));
              }),
              HasSubstr("weights are codes of awq; expected elements"));
  write_bytes(coded_ + "config.json", file_bytes(plain_ + "config.json"));
  EXPECT_THAT(refusal(), HasSubstr("has no quantization_config, and tensor model.layers.0"));
}

TEST_F(GroupedFolder, NamesTensorsThatAreMissingOrOtherwise) {
  const GroupedModel model = save_codes(short_groups(), {.group = 32});
  const std::string q = "model.layers.1.self_attn.q_proj.";
  EXPECT_THAT(refusal_of(model, [&](TensorList& codes) { codes.erase(q + "scales"); }),
              HasSubstr("model.safetensors: tensor \"" + q +
                        "scales\": found none of that name, expected F16 [3, 96], as gptq has it"));
  const auto with = [&](const std::string& name, FileType type, std::vector<std::int64_t> shape,
                        std::int64_t bytes) {
    return refusal_of(model, [&](TensorList& codes) {
      codes.add(q + name, type, shape, std::vector<std::uint8_t>(static_cast<std::size_t>(bytes)));
    });
  };
  EXPECT_THAT(with("qweight", FileType::i32, {18, 48}, 18 * 48 * 4),
              AllOf(HasSubstr(q + "qweight\": found shape [18, 48], expected [9, 96] of 72 inputs, "
                                  "96 outputs and groups of 32")));
  EXPECT_THAT(with("qzeros", FileType::i32, {2, 12}, 2 * 12 * 4),
              HasSubstr(q + "qzeros\": found shape [2, 12], expected [3, 12]"));
  EXPECT_THAT(with("scales", FileType::u8, {3, 96}, 3 * 96),
              HasSubstr(q + "scales\": found dtype U8, expected F16"));
  EXPECT_THAT(with("weight", FileType::f16, {96, 72}, 96 * 72 * 2),
              HasSubstr(q + "weight\": found elements, expected codes, "));
  EXPECT_THAT(refusal_of(model,
                         [](TensorList& codes) {
                           codes.add("lm_head.qweight", FileType::i32, {1},
                                     std::vector<std::int32_t>{0});
                         }),
              HasSubstr("tensor \"lm_head.qweight\": found I32 [1], expected no tensor"));
}

TEST_F(GroupedFolder, ReadsTheOrderOfInputsOfGptq) {
  const GroupedModel model = save_codes(short_groups(), {.group = 32});
  const std::string q = "model.layers.1.self_attn.q_proj.g_idx";
  std::vector<std::int32_t> order(72);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i / 32);
  std::swap(order[31], order[32]);
  EXPECT_THAT(
      refusal_of(model, [&](TensorList& codes) { codes.add(q, FileType::i32, {72}, order); }),
      AllOf(HasSubstr("\"" + q +
                      "\": found group 1 of input 31, expected 0: groups of "
                      "inputs in another order (desc_act) are not read"),
            EndsWith("and --weights int8, nf4 or q4")));
  EXPECT_EQ(refusal_of(model, [&](TensorList& codes) { codes.erase(q); }), kNoError);
}

TEST_F(GroupedFolder, AwaitsTheOrderOfInputsThatMayHaveAnother) {
  const auto is_order = [](const std::string& name) { return name.ends_with(".g_idx"); };
  const GroupedModel model = save_codes(short_groups(), {.group = 32, .sorted = true});
  EXPECT_EQ(refusal(), kNoError) << "in order";
  const std::string of_one = "model.layers.1.mlp.down_proj.g_idx";
  EXPECT_THAT(refusal_of(model, [&](TensorList& codes) { codes.erase(of_one); }),
              AllOf(HasSubstr("model.safetensors: tensor \"" + of_one +
                              "\": found none of that name, and desc_act true in config.json"),
                    EndsWith("and --weights int8, nf4 or q4")));
  EXPECT_THAT(refusal_of(model, [&](TensorList& codes) { codes.erase_if(is_order); }),
              HasSubstr("g_idx\": found none of that name, and desc_act true"));
  // Inputs of one group have no order. No matrix has more than 200.
  for (const std::int64_t group : {-1, 224}) {
    const GroupedModel whole = save_codes(short_groups(), {.group = group, .sorted = true});
    EXPECT_EQ(refusal_of(whole, [&](TensorList& codes) { codes.erase_if(is_order); }), kNoError);
  }
}

// Early programs of GPTQ wrote a bias beside each matrix.
TEST_F(GroupedFolder, TakesABiasOfZerosThatTheModelLacks) {
  const GroupedModel model = save_codes(short_groups(), {});
  std::vector<float> bias(96, 0.0F);
  const std::string q = "model.layers.0.self_attn.q_proj.bias";
  const auto add = [&](TensorList& codes) { codes.add(q, FileType::f32, {96}, bias); };
  EXPECT_EQ(refusal_of(model, add), kNoError);
  bias[5] = 0.5F;
  EXPECT_THAT(
      refusal_of(model, add),
      HasSubstr("\"" + q + "\": found 0.5 at [5], expected 0: the model has no bias there"));
}

TEST_F(GroupedFolder, ChecksScalesAndSymmetricZeroPoints) {
  const GroupedModel model = save_codes(short_groups(), {.symmetric = true, .group = 32});
  const std::string q = "model.layers.0.self_attn.q_proj.";
  // Stored as gptq_v2 stores 8: 9 here.
  EXPECT_EQ(refusal_of(model,
                       [&](TensorList& codes) {
                         codes.add(q + "qzeros", FileType::i32, {3, 12},
                                   std::vector<std::uint32_t>(36, 0x88888888U));
                       }),
            kNoError);
  EXPECT_THAT(refusal_when_read(),
              HasSubstr(q + "qzeros\": found zero point 9 at [0, 0], expected 8: config.json says "
                            "that codes are symmetric (sym); is checkpoint_format gptq or "
                            "gptq_v2?"));
  // In the model's dtype, as programs of GPTQ have them.
  std::vector<float> scales(3 * 96, 0.125F);
  const auto store = [&](float last) {
    scales[2 * 96 + 7] = last;
    return refusal_of(model, [&](TensorList& codes) {
      codes.add(q + "scales", FileType::f32, {3, 96}, scales);
    });
  };
  EXPECT_EQ(store(0.25F), kNoError);
  EXPECT_EQ(refusal_when_read(), kNoError);
  for (const float bad : {std::numeric_limits<float>::infinity(), 1 + 0x1p-20F}) {
    EXPECT_EQ(store(bad), kNoError);
    EXPECT_THAT(refusal_when_read(),
                HasSubstr(q + fmt::format("scales\": found {} at [2, 7], expected a finite number "
                                          "that fp16 holds",
                                          bad)));
  }
}

// Words as the papers' programs write them, not as the tests above make them.
TEST_F(GroupedFolder, ReadsWordsOfBothPackings) {
  struct Case {
    GroupedKind kind;
    std::uint32_t codes, zeros;
  };
  // Eight codes of one word: GPTQ's are of inputs 0 to 7, AWQ's of outputs 0 to 7, in which order
  // outputs 0, 2, 4, 6, 1, 3, 5, 7 have them. Zero points 1 to 8 of outputs 0 to 7.
  for (const Case& each : {Case{{.group = 32}, 0x76543210U, 0x76543210U},
                           Case{{.v2 = true, .group = 32}, 0x76543210U, 0x87654321U},
                           Case{{.awq = true, .group = 32}, 0x75316420U, 0x86427531U}}) {
    GroupedModel model = save_codes(short_groups(), each.kind);
    const std::string down = "model.layers.0.mlp.down_proj.";  // 200 inputs, 72 outputs
    const bool awq = each.kind.awq;
    const auto words = static_cast<std::size_t>(awq ? 200 * 9 : 25 * 72);
    model.codes.add(down + "qweight", FileType::i32,
                    awq ? std::vector<std::int64_t>{200, 9} : std::vector<std::int64_t>{25, 72},
                    std::vector<std::uint32_t>(words, each.codes));
    model.codes.add(down + "qzeros", FileType::i32, {7, 9},
                    std::vector<std::uint32_t>(63, each.zeros));
    model.codes.add(down + "scales", FileType::f16, {7, 72},
                    std::vector<float16>(7 * 72, to_float16(0.5F)));
    model.write(coded_, plain_);
    const ModelFolder folder(coded_);
    const auto tensors = ModelWeights::tensors(folder.shape());
    const auto at = std::ranges::find_if(tensors, [](const LogicalTensor& tensor) {
      return tensor.name.find("down") != std::string::npos;
    });
    ASSERT_NE(at, tensors.end());
    std::vector<float> values(72 * 200);
    folder.source().read(static_cast<std::size_t>(at - tensors.begin()), 0, values);
    for (std::size_t output = 0; output < 72; ++output) {
      for (std::size_t input = 0; input < 200; ++input) {
        const auto code = static_cast<int>(awq ? output % 8 : input % 8);
        const auto zero = static_cast<int>(output % 8) + 1;
        ASSERT_EQ(values[output * 200 + input], 0.5F * static_cast<float>(code - zero))
            << output << ", " << input;
      }
    }
  }
}

}  // namespace
}  // namespace zero::testing
