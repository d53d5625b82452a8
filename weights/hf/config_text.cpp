// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "architecture/family.h"
#include "base/error.h"
#include "base/json_tree.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

using nlohmann::ordered_json;

/// The fields of a source; weights beside them are in `dtype`, a name of torch's.
ordered_json carried(std::string_view text, std::string_view dtype) {
  ordered_json tree = *parse_ordered_tree(text);
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (tree.contains(key)) tree[key] = dtype;
  }
  return tree;
}

}  // namespace

std::string hf_config_text(const DecoderShape& shape) {
  return shape.family->to_hf(shape).dump(2) + "\n";
}

std::string carried_config_text(const std::string& path, std::string_view text) {
  parse_hf_config(path, text);
  constexpr const char* kType = "float32";
  ordered_json tree = carried(text, kType);
  if (!tree.contains("torch_dtype") && !tree.contains("dtype")) tree["torch_dtype"] = kType;
  return tree.dump(2) + "\n";
}

std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype) {
  parse_hf_config(path, text);
  ordered_json tree = carried(text, dtype);
  tree[kHfQuantization] = {{"quant_method", kHfOurMethod}, {"format", codes}, {"version", 1}};
  return tree.dump(2) + "\n";
}

}  // namespace zero
