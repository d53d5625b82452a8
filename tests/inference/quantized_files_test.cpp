// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Files of codes that are not as they are written.
#include "weights/quantized_files.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "inference/inference_model.h"
#include "tests/errors.h"
#include "tests/inference/quantized_model.h"
#include "tests/inference/saved_model.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A safetensors file, to be changed.
struct Tensors {
  explicit Tensors(const std::string& path) {
    const SafetensorsReader reader(path);
    for (const FileTensor& tensor : reader.header().tensors) {
      std::string& data = all.emplace_back(tensor, std::string()).second;
      data.resize(static_cast<std::size_t>(tensor.end - tensor.begin));
      reader.read(tensor, 0, std::as_writable_bytes(std::span(data)));
    }
  }
  std::pair<FileTensor, std::string>& at(const std::string& name) {
    return *std::ranges::find(all, name, [](const auto& each) { return each.first.name; });
  }
  void write(const std::string& path) const {
    std::vector<FileTensor> tensors;
    for (const auto& each : all) tensors.push_back(each.first);
    const FileHeader header = lay_out(tensors, {});
    std::string bytes = header_bytes(header);
    for (const FileTensor& tensor : header.tensors) {
      bytes += std::ranges::find(all, tensor.name, [](const auto& each) {
                 return each.first.name;
               })->second;
    }
    write_bytes(path, bytes);
  }
  std::vector<std::pair<FileTensor, std::string>> all;
};

class HostileCodes : public ::testing::Test {
 protected:
  HostileCodes() { with_saved_model(odd_gpt2(), plain_, 1); }

  /// What is said of a file that `change` has changed.
  std::string refusal(WeightFormat format, const std::function<void(Tensors&)>& change) {
    const std::string folder = scratch_.path(std::string(name_of(format)) + "/");
    if (!std::filesystem::exists(folder)) save_codes(plain_, folder, {format, DType::fp32});
    Tensors tensors(folder + "model.safetensors");
    change(tensors);
    const std::string changed = scratch_.path("changed/");
    std::filesystem::create_directory(changed);
    write_bytes(changed + "config.json", file_bytes(folder + "config.json"));
    tensors.write(changed + "model.safetensors");
    const auto device = cpu::open();
    return error_of([&] { open_inference_model(*device, changed, {.weights = format}); });
  }
  /// The same with a value put to byte `offset` of a tensor.
  template <typename T>
  std::string with_value(WeightFormat format, const std::string& name, std::size_t offset,
                         T value) {
    return refusal(format, [&](Tensors& tensors) {
      std::memcpy(tensors.at(name).second.data() + offset, &value, sizeof value);
    });
  }

  const Scratch scratch_;
  const std::string plain_ = scratch_.path("plain/");
};

TEST_F(HostileCodes, AreReadIfNothingIsChanged) {
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
    EXPECT_EQ(refusal(format, [](Tensors&) {}), "no error");
  }
}

TEST_F(HostileCodes, NeedEveryTensorInItsTypeAndShape) {
  const auto without = [&](WeightFormat format, const std::string& name) {
    return refusal(format, [&](Tensors& tensors) {
      std::erase_if(tensors.all, [&](const auto& each) { return each.first.name == name; });
    });
  };
  EXPECT_THAT(without(WeightFormat::int8, "h.1.mlp.c_fc.weight_scale"),
              HasSubstr("changed/model.safetensors: tensor \"h.1.mlp.c_fc.weight_scale\": found "
                        "none of that name, expected shape [252]"));
  EXPECT_THAT(without(WeightFormat::nf4, "wte.weight_scale_range"),
              HasSubstr("\"wte.weight_scale_range\": found none of that name, expected shape "
                        "[10, 1, 2]"));
  EXPECT_THAT(without(WeightFormat::q4, "wte.weight"), HasSubstr("expected shape [317, 32]"));
  EXPECT_THAT(without(WeightFormat::q4, "ln_f.bias"),
              HasSubstr("tensor \"ln_f.bias\": found none of that name, expected shape [63]"));

  const auto retyped = [&](WeightFormat format, const std::string& name, FileType type) {
    return refusal(format, [&](Tensors& tensors) { tensors.at(name).first.type = type; });
  };
  EXPECT_THAT(retyped(WeightFormat::int8, "wte.weight", FileType::u8),
              HasSubstr("tensor \"wte.weight\": found dtype U8, expected I8"));
  EXPECT_THAT(retyped(WeightFormat::q4, "wte.weight_scale", FileType::bf16),
              HasSubstr("tensor \"wte.weight_scale\": found dtype BF16, expected F16"));
  EXPECT_THAT(retyped(WeightFormat::nf4, "wpe.weight", FileType::i32),
              HasSubstr("tensor \"wpe.weight\": found dtype I32, expected F32, BF16 or F16"));

  const auto reshaped = [&](WeightFormat format, const std::string& name,
                            std::vector<std::int64_t> shape) {
    return refusal(format,
                   [&](Tensors& tensors) { tensors.at(name).first.shape = std::move(shape); });
  };
  EXPECT_THAT(reshaped(WeightFormat::q4, "wte.weight", {32, 317}),
              HasSubstr("tensor \"wte.weight\": found shape [32, 317], expected [317, 32]"));
  EXPECT_THAT(reshaped(WeightFormat::nf4, "wte.weight_scale", {317}),
              HasSubstr("found shape [317], expected [317, 1]"));
  EXPECT_THAT(reshaped(WeightFormat::int8, "ln_f.bias", {1, 63}),
              HasSubstr("tensor \"ln_f.bias\": found shape [1, 63], expected [63]"));
  EXPECT_THAT(refusal(WeightFormat::int8,
                      [](Tensors& tensors) {
                        tensors.all.push_back({{"lm_head.weight", FileType::i8, {1}}, "x"});
                      }),
              HasSubstr("tensor \"lm_head.weight\": expected no tensor of that name"));
}

TEST_F(HostileCodes, NeedScalesThatStandForNumbers) {
  for (const float scale : {kNan, -1.0F, 1e37F, std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(with_value(WeightFormat::int8, "h.0.attn.c_attn.weight_scale", 8, scale),
                AllOf(HasSubstr("changed/model.safetensors: tensor "
                                "\"h.0.attn.c_attn.weight_scale\": found "),
                      HasSubstr(" at [0, 2], expected 0 to 2.679e36")));
  }
  EXPECT_THAT(with_value(WeightFormat::q4, "wte.weight_scale", 6, float16{0x7c00}),
              HasSubstr("tensor \"wte.weight_scale\": found inf at [3, 0], expected a finite"));
  for (const ScaleRange range : {ScaleRange{kNan, 0}, ScaleRange{0, kNan}, ScaleRange{-1, 0},
                                 ScaleRange{0, -1}, ScaleRange{0, 3e38F}}) {
    EXPECT_THAT(with_value(WeightFormat::nf4, "wte.weight_scale_range", 16, range),
                AllOf(HasSubstr("tensor \"wte.weight_scale_range\": found "),
                      HasSubstr(" at [2, 0], expected the least scale and a step")));
  }
}

TEST_F(HostileCodes, NeedCodesOfTheFormat) {
  EXPECT_THAT(with_value(WeightFormat::int8, "wte.weight", 64, std::int8_t{-128}),
              HasSubstr("tensor \"wte.weight\": found -128 at [1, 1], expected -127 to 127"));
  EXPECT_THAT(
      with_value(WeightFormat::nf4, "wte.weight", 63, std::uint8_t{0x31}),
      HasSubstr("tensor \"wte.weight\": found code 3 behind the last one of row 1, expected "
                "0: a row has 63"));
}

TEST_F(HostileCodes, HaveEachTensorInOneFile) {
  const std::string folder = scratch_.path("q4/");
  save_codes(plain_, folder, {WeightFormat::q4, DType::fp32});
  const std::string whole = folder + "model.safetensors";
  const Tensors all(whole);
  const std::string first = folder + "model-1.safetensors";
  const std::string second = folder + "model-2.safetensors";
  const auto split = [&](const std::string& in_both) {
    Tensors one = all;
    Tensors two = all;
    std::erase_if(one.all, [](const auto& each) { return each.first.name.starts_with("h.1."); });
    std::erase_if(two.all, [&](const auto& each) {
      return !each.first.name.starts_with("h.1.") && each.first.name != in_both;
    });
    one.write(first);
    two.write(second);
  };
  std::filesystem::remove(whole);
  write_bytes(whole + ".index.json",
              R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  split("none");
  EXPECT_EQ(error_of([&] { ModelFolder{folder}; }), "no error");
  for (const std::string name : {"wte.weight", "wte.weight_scale", "ln_f.bias"}) {
    split(name);
    EXPECT_EQ(
        error_of([&] { ModelFolder{folder}; }),
        first + ": tensor \"" + name + "\": found in " + second + " too, expected in one file");
  }
}

TEST_F(HostileCodes, HaveAsManyLayersAsTheFiles) {
  const std::string folder = scratch_.path("int8/");
  save_codes(plain_, folder, {});
  std::string config = file_bytes(folder + "config.json");
  config.replace(config.find("\"n_layer\": 2"), 12, "\"n_layer\": 16777216");
  write_bytes(folder + "config.json", config);
  EXPECT_THAT(error_of([&] { ModelFolder{folder}; }),
              HasSubstr("config.json has 16777216 layers, and the files of weights 37 tensors"));
}

}  // namespace
}  // namespace zero::testing
