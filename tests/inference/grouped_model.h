// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "tests/scratch.h"
#include "weights/hf/safetensors.h"

namespace zero::testing {

/// What a folder of codes is written as.
struct GroupedKind {
  bool awq = false;
  bool v2 = false;         ///< GPTQ's zero points as they are
  bool symmetric = false;  ///< every zero point is 8
  std::int64_t group = 32;
  bool sorted = false;  ///< desc_act of GPTQ
};

/// A matrix of codes with its formula: element (input, output) is (code - zero) * scale, of the
/// group input / length.
struct GroupedMatrix {
  GroupedMatrix(std::int64_t inputs, std::int64_t outputs, const GroupedKind& kind,
                std::mt19937& random)
      : in(inputs), out(outputs), length(kind.group < 0 ? inputs : kind.group) {
    const std::int64_t groups = (in + length - 1) / length;
    std::uniform_int_distribution<int> code(0, 15);
    std::uniform_int_distribution<int> zero(0, 15);
    std::uniform_real_distribution<float> scale(-0.03F, 0.03F);
    for (std::int64_t i = 0; i < in * out; ++i) codes.push_back(code(random));
    for (std::int64_t i = 0; i < groups * out; ++i) {
      // A stored zero point of 15 less one would be 0 borrowed of its neighbour.
      zeros.push_back(kind.symmetric ? 8 : std::max(zero(random), kind.awq || kind.v2 ? 0 : 1));
      scales.push_back(to_float16(scale(random)));
    }
  }

  int code(std::int64_t input, std::int64_t output) const {
    return codes[static_cast<std::size_t>(input * out + output)];
  }
  float value(std::int64_t input, std::int64_t output) const {
    const auto at = static_cast<std::size_t>(input / length * out + output);
    return static_cast<float>(code(input, output) - zeros[at]) * to_float(scales[at]);
  }

  /// GPTQ: words of eight inputs, the first in the low bits.
  std::vector<std::uint32_t> inputs_in_words() const {
    std::vector<std::uint32_t> words;
    for (std::int64_t row = 0; row < in / 8; ++row) {
      for (std::int64_t output = 0; output < out; ++output) {
        std::uint32_t word = 0;
        for (std::int64_t i = 0; i < 8; ++i) {
          word |= static_cast<std::uint32_t>(code(row * 8 + i, output)) << (4 * i);
        }
        words.push_back(word);
      }
    }
    return words;
  }
  /// Words of eight outputs of rows of `values`, in the given order from the low bits up.
  std::vector<std::uint32_t> outputs_in_words(const std::vector<int>& values,
                                              const std::array<std::int64_t, 8>& order,
                                              int less) const {
    std::vector<std::uint32_t> words;
    for (std::size_t at = 0; at < values.size(); at += 8) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        const int value = values[at + static_cast<std::size_t>(order.at(i))] - less;
        word |= static_cast<std::uint32_t>(value) << (4 * i);
      }
      words.push_back(word);
    }
    return words;
  }

  std::int64_t in, out, length;
  std::vector<int> codes;         ///< (in, out)
  std::vector<int> zeros;         ///< (groups, out)
  std::vector<float16> scales{};  ///< (groups, out)
};

/// Tensors of one safetensors file by name.
class TensorList {
 public:
  template <typename T>
  void add(const std::string& name, FileType type, const std::vector<std::int64_t>& shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    tensors_[name] = {{.name = name, .type = type, .shape = shape}, {bytes.begin(), bytes.end()}};
  }
  void erase(const std::string& name) { tensors_.erase(name); }
  template <typename Is>
  void erase_if(const Is& is) {
    std::erase_if(tensors_, [&](const auto& tensor) { return is(tensor.first); });
  }
  void write(const std::string& path) const {
    std::vector<FileTensor> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(tensor.first);
    const FileHeader header = lay_out(all, {});
    std::string bytes = header_bytes(header);
    for (const FileTensor& each : header.tensors) {
      const auto& data = tensors_.at(each.name).second;
      bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    }
    write_bytes(path, bytes);
  }

 private:
  std::map<std::string, std::pair<FileTensor, std::vector<std::byte>>> tensors_;
};

/// The model of a plain folder with other matrices in its blocks: codes, and their values as fp32.
class GroupedModel {
 public:
  GroupedModel(const std::string& folder, const GroupedKind& kind)
      : kind_(kind), config_(nlohmann::json::parse(file_bytes(folder + "config.json"))) {
    const SafetensorsReader file(folder + "model.safetensors");
    for (const FileTensor& tensor : file.header().tensors) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
      file.read(tensor, 0, bytes);
      // Of blocks: "model.layers.0..." or "h.0..." .
      const bool block = tensor.name.find("layers.") != std::string::npos ||
                         tensor.name.find("h.") != std::string::npos;
      if (block && tensor.shape.size() == 2) {
        add(tensor.name, tensor.shape);
      } else {
        codes.add(tensor.name, tensor.type, tensor.shape, bytes);
        values.add(tensor.name, tensor.type, tensor.shape, bytes);
      }
    }
  }

  /// quantization_config of GPTQ's or AWQ's programs.
  nlohmann::json section() const {
    if (kind_.awq) {
      return {{"quant_method", "awq"},     {"bits", 4},
              {"group_size", kind_.group}, {"zero_point", !kind_.symmetric},
              {"version", "gemm"},         {"modules_to_not_convert", nullptr}};
    }
    nlohmann::json section{{"quant_method", "gptq"},    {"bits", 4},
                           {"group_size", kind_.group}, {"sym", kind_.symmetric},
                           {"desc_act", kind_.sorted},  {"damp_percent", 0.01}};
    if (kind_.v2) section["checkpoint_format"] = "gptq_v2";
    return section;
  }
  /// Writes both folders, which end with a slash.
  void write(const std::string& coded, const std::string& plain) const {
    std::filesystem::create_directories(coded);
    std::filesystem::create_directories(plain);
    nlohmann::json config = config_;
    write_bytes(plain + "config.json", config.dump());
    config["quantization_config"] = section();
    write_bytes(coded + "config.json", config.dump());
    codes.write(coded + "model.safetensors");
    values.write(plain + "model.safetensors");
  }

  TensorList codes, values;
  std::map<std::string, GroupedMatrix> matrices{};  ///< by the name of the plain tensor
  bool turned = false;                              ///< (in, out) in plain files: GPT-2

 private:
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    turned = name.find("h.") == 0 || name.find(".h.") != std::string::npos;
    const std::int64_t in = shape[turned ? 0 : 1];
    const std::int64_t out = shape[turned ? 1 : 0];
    const GroupedMatrix& of = matrices.try_emplace(name, in, out, kind_, random_).first->second;
    std::vector<float> elements;
    for (std::int64_t i = 0; i < in * out; ++i) {
      elements.push_back(turned ? of.value(i / out, i % out) : of.value(i % in, i / in));
    }
    values.add(name, FileType::f32, shape, elements);
    const std::string stem = name.substr(0, name.size() - std::string("weight").size());
    const std::int64_t groups = std::ssize(of.scales) / out;
    constexpr std::array<std::int64_t, 8> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};
    constexpr std::array<std::int64_t, 8> kOfAwq{0, 2, 4, 6, 1, 3, 5, 7};
    const auto& order = kind_.awq ? kOfAwq : kInOrder;
    const int less = kind_.awq || kind_.v2 ? 0 : 1;
    codes.add(stem + "scales", FileType::f16, {groups, out}, of.scales);
    codes.add(stem + "qzeros", FileType::i32, {groups, out / 8},
              of.outputs_in_words(of.zeros, order, less));
    if (kind_.awq) {
      codes.add(stem + "qweight", FileType::i32, {in, out / 8},
                of.outputs_in_words(of.codes, order, 0));
      return;
    }
    codes.add(stem + "qweight", FileType::i32, {in / 8, out}, of.inputs_in_words());
    std::vector<std::int32_t> group_of;
    for (std::int64_t i = 0; i < in; ++i) {
      group_of.push_back(static_cast<std::int32_t>(i / of.length));
    }
    codes.add(stem + "g_idx", FileType::i32, {in}, group_of);
  }

  GroupedKind kind_;
  nlohmann::json config_;
  std::mt19937 random_{11};
};

}  // namespace zero::testing
