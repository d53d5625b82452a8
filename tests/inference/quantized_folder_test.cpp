// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Folders of codes answer as the folders from which they were made.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/errors.h"
#include "tests/inference/quantized_model.h"
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::array kCodes{WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4};

/// The largest difference.
float distance(const Logits& found, const Logits& expected) {
  EXPECT_EQ(found.size(), expected.size());
  float most = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    most = std::max(most, std::abs(found[i] - expected[i]));
  }
  return most;
}

class QuantizedFolder : public InferenceRanks {
 protected:
  /// Models are read from the codes from here on.
  void go_on_with_codes(WeightFormat format, DType vectors = DType::fp32) {
    const std::string codes = scratch_.path(std::string(name_of(format)) + "/");
    if (!std::filesystem::exists(codes)) save_codes(plain_, codes, {format, vectors});
    folder_ = codes;
  }
  void save(const DecoderShape& config) {
    for (const WeightFormat format : kCodes) {
      std::filesystem::remove_all(scratch_.path(name_of(format)));
    }
    with_saved_model(config, plain_, 1);
    folder_ = plain_;
  }
  const std::string plain_ = folder_;
};

TEST_F(QuantizedFolder, GivesTheBitsOfQuantizingAtLoadInEveryLayoutAndDtype) {
  for (const DecoderShape& config :
       {small_gpt2(), odd_gpt2(), small_llama(), small_qwen2(), small_qwen3(),
        small_llama({{"window", 20}, {"local_layers", "1"}}), small_gemma3()}) {
    save(config);
    for (const WeightFormat format : kCodes) {
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        const InferenceOptions with = rank_options(dtype, format);
        folder_ = plain_;
        const Logits expected = alone(0, with);
        go_on_with_codes(format);
        ASSERT_EQ(alone(0, with), expected) << name_of(format) << " in " << name_of(dtype);
      }
    }
  }
}

TEST_F(QuantizedFolder, HasVectorsInTheDtypeThatIsAskedFor) {
  save(small_llama());
  const InferenceOptions with = rank_options(DType::bf16, WeightFormat::nf4);
  const Logits expected = alone(0, with);
  go_on_with_codes(WeightFormat::nf4, DType::bf16);
  EXPECT_EQ(alone(0, with), expected);
  const ModelFolder folder(folder_);
  EXPECT_EQ(
      std::filesystem::file_size(folder_ + "model.safetensors"),
      quantized_header(folder.shape(), {WeightFormat::nf4, DType::bf16}).data_begin +
          quantized_header(folder.shape(), {WeightFormat::nf4, DType::bf16}).tensors.back().end);
}

TEST_F(QuantizedFolder, GivesRanksThatShareWeightsTheBitsOfOneProcess) {
  for (const DecoderShape& config : {three_blocks_of_gpt2(), three_blocks_of_llama()}) {
    save(config);
    for (const WeightFormat format : kCodes) {
      const InferenceOptions with = rank_options(DType::fp32, format);
      go_on_with_codes(format);
      std::vector<Logits> expected;
      for (int shard = 0; shard < 3; ++shard) expected.push_back(alone(shard, with));
      EXPECT_EQ(on_mesh({.shard = 3}, with), expected) << name_of(format);
    }
  }
}

// Heads and columns of a rank begin where groups and ranges do: codes and scales are the whole's.
TEST_F(QuantizedFolder, IsCutForTensorRanksWithoutQuantizingAgain) {
  const DecoderShape llama = small_llama(
      {{"layers", 1}, {"heads", 16}, {"kv_heads", 16}, {"head_width", 64}, {"intermediate", 1024}});
  const DecoderShape gpt2 =
      small_gpt2({{"layers", 1}, {"width", 1024}, {"heads", 8}, {"vocabulary", 100}});
  for (const DecoderShape& config : {llama, gpt2}) {
    save(config);
    for (const WeightFormat format : kCodes) {
      const InferenceOptions with = rank_options(DType::fp32, format);
      go_on_with_codes(format);
      const Logits expected = alone(0, with);
      float largest = 0;
      for (const float logit : expected) largest = std::max(largest, std::abs(logit));
      for (const Logits& found : on_mesh({.shard = 1, .tensor = 2}, with)) {
        EXPECT_LT(distance(found, expected), 1e-5F * largest) << name_of(format);
      }
    }
  }
}

// A rank's inputs begin inside a group: its codes are made again of what the whole's stand for.
TEST_F(QuantizedFolder, IsQuantizedAgainForTensorRanksWithOtherGroups) {
  DecoderShape inside_a_range = three_blocks_of_llama();
  inside_a_range.intermediate = 3 * 384;  // whole groups of nf4
  for (const DecoderShape& config :
       {three_blocks_of_gpt2(), three_blocks_of_llama(), inside_a_range}) {
    save(config);
    const Logits plain = alone(0, rank_options());
    for (const WeightFormat format : kCodes) {
      const InferenceOptions with = rank_options(DType::fp32, format);
      go_on_with_codes(format);
      const Logits expected = alone(0, with);
      const float rounding = distance(expected, plain);
      const std::vector<Logits> found = on_mesh({.shard = 1, .tensor = 3}, with);
      EXPECT_EQ(found[0], found[2]);
      EXPECT_LT(distance(found[0], expected),
                format == WeightFormat::int8 ? 1e-4F : 1.2F * rounding)
          << name_of(format);
    }
  }
}

// A range of nf4 has 8 groups of 64 inputs.
TEST_F(QuantizedFolder, HasNoCodesOfAPartThatBeginsInsideARange) {
  const DecoderShape llama = small_llama({{"intermediate", 1152}});
  save(llama);
  go_on_with_codes(WeightFormat::nf4);
  const ModelFolder folder(folder_);
  const ModelWeights::Source source = folder.source();
  const auto tensors = ModelWeights::tensors(llama);
  const auto down = std::ranges::find_if(tensors, [](const LogicalTensor& tensor) {
    return tensor.name.find("down") != std::string::npos;
  });
  ASSERT_NE(down, tensors.end());
  for (const std::int64_t begin : {0, 384, 512, 960, 1024}) {
    const std::int64_t in = llama.intermediate - begin;
    const TensorPart part{{{0, llama.width}}, {{begin, in}}, llama.intermediate};
    const WeightShape shape{in, llama.width, WeightLayout::out_in, DType::fp32, WeightFormat::nf4};
    const auto parameter = static_cast<std::size_t>(down - tensors.begin());
    EXPECT_EQ(source.read_codes(parameter, part, shape, 0, 32).has_value(), begin % 512 == 0)
        << begin;
  }
}

// Nor inside the 32 outputs of one: the scales that follow would be another range's.
TEST_F(QuantizedFolder, HasNoCodesOfAPartWhoseOutputsBeginInsideARange) {
  const DecoderShape llama = small_llama();
  save(llama);
  go_on_with_codes(WeightFormat::nf4);
  const ModelFolder folder(folder_);
  const ModelWeights::Source source = folder.source();
  const auto tensors = ModelWeights::tensors(llama);
  const auto down = std::ranges::find_if(tensors, [](const LogicalTensor& tensor) {
    return tensor.name.find("down") != std::string::npos;
  });
  ASSERT_NE(down, tensors.end());
  const auto parameter = static_cast<std::size_t>(down - tensors.begin());
  for (const std::int64_t begin : {0, 8, 16, 24, 32, 40, 48, 64}) {
    const std::int64_t out = llama.width - begin;
    const TensorPart part{{{begin, out}}, {{0, llama.intermediate}}, llama.intermediate};
    const WeightShape shape{llama.intermediate, out, WeightLayout::out_in, DType::fp32,
                            WeightFormat::nf4};
    const std::int64_t rows = std::min<std::int64_t>(out, 32);
    EXPECT_EQ(source.read_codes(parameter, part, shape, 0, rows).has_value(), begin % 32 == 0)
        << begin;
  }
}

TEST_F(QuantizedFolder, IsRefusedInAnotherFormat) {
  save(small_llama());
  go_on_with_codes(WeightFormat::nf4);
  EXPECT_EQ(stored_format(folder_), WeightFormat::nf4);
  EXPECT_EQ(stored_format(plain_), WeightFormat::plain);
  for (const WeightFormat wanted : {WeightFormat::plain, WeightFormat::int8, WeightFormat::q4}) {
    EXPECT_THAT(
        error_of([&] { alone(0, rank_options(DType::fp32, wanted)); }),
        HasSubstr(fmt::format("its matrices are codes of nf4, of which no weights of {} can be "
                              "made; expected --weights nf4, or none, or the folder from which",
                              name_of(wanted))));
  }
  EXPECT_THAT(error_of([&] { save_codes(folder_, scratch_.path("again/"), {}); }),
              HasSubstr("weights are codes of nf4; expected elements"));
  write_bytes(folder_ + "config.json",
              quantized_config_text("config.json", file_bytes(plain_ + "config.json"), "int3", ""));
  EXPECT_THAT(error_of([&] { stored_format(folder_); }),
              HasSubstr("quantization_config.format: found \"int3\", expected int8, nf4 or q4"));
}

TEST_F(QuantizedFolder, WithoutQuantizationConfigSaysWhatIsMissing) {
  save(small_llama());
  for (const WeightFormat format : kCodes) {
    go_on_with_codes(format);
    write_bytes(folder_ + "config.json", file_bytes(plain_ + "config.json"));
    EXPECT_THAT(error_of([&] { ModelFolder folder(folder_); }),
                HasSubstr("/config.json: has no quantization_config, and tensor "))
        << name_of(format);
  }
}

TEST_F(QuantizedFolder, IsNotWrittenWithAVectorThatItsDtypeCannotHold) {
  save(small_gpt2());
  const std::string path = plain_ + "model.safetensors";
  std::string bytes = file_bytes(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto tensors = nlohmann::json::parse(bytes.substr(sizeof(header), header));
  const auto norm = std::ranges::find_if(
      tensors.items(), [](const auto& each) { return each.key().ends_with("ln_f.weight"); });
  const std::string name = (*norm).key();
  const std::size_t begin = (*norm).value()["data_offsets"][0];
  const float large = 1e6F;
  std::memcpy(bytes.data() + sizeof(header) + header + begin + 2 * sizeof(large), &large,
              sizeof(large));
  write_bytes(path, bytes);
  EXPECT_EQ(
      error_of([&] {
        save_codes(plain_, scratch_.path("fp16/"), {WeightFormat::int8, DType::fp16});
      }),
      "tensor \"" + name + "\": element 2 is 1000000, too large for fp16; take another --dtype");
  save_codes(plain_, scratch_.path("bf16/"), {WeightFormat::int8, DType::bf16});
}

TEST(QuantizedHeader, TakesAsManyBytesAsTheFormatSays) {
  const auto bytes_a_parameter = [](const DecoderShape& config, const QuantizedFormats& formats) {
    const FileHeader header = quantized_header(config, formats);
    const auto parameters = static_cast<double>(config.parameter_count());
    return static_cast<double>(header.data_begin + header.tensors.back().end) / parameters;
  };
  const DecoderShape gpt2 = decoder_shape({{"name", "gpt2-124m"}});
  const DecoderShape llama = small_llama({{"layers", 16},
                                          {"width", 2048},
                                          {"heads", 32},
                                          {"kv_heads", 8},
                                          {"head_width", 64},
                                          {"intermediate", 8192},
                                          {"vocabulary", 128256}});
  for (const DecoderShape& config : {gpt2, llama}) {
    EXPECT_LT(bytes_a_parameter(config, {WeightFormat::int8, DType::bf16}), 1.02);
    EXPECT_LT(bytes_a_parameter(config, {WeightFormat::nf4, DType::fp32}), 0.56);
    EXPECT_LT(bytes_a_parameter(config, {WeightFormat::q4, DType::fp32}), 0.56);
  }
  // The figures of docs/quantized_weights.md.
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::int8, DType::fp32}), 1.026, 6e-4);
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::int8, DType::bf16}), 1.012, 6e-4);
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::nf4, DType::fp32}), 0.542, 6e-4);
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::nf4, DType::bf16}), 0.527, 6e-4);
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::q4, DType::fp32}), 0.541, 6e-4);
  EXPECT_NEAR(bytes_a_parameter(gpt2, {WeightFormat::q4, DType::bf16}), 0.527, 6e-4);
}

}  // namespace
}  // namespace zero::testing
