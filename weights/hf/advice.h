// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero {

struct FileTensor;

// Models as other programs save them, or call them, which are not read as they are: how one is
// known, and what to give instead.

/// Bytes of a file's start that foreign_file() looks at, at most.
inline constexpr std::size_t kForeignStart = 16;

/// The format of the file that begins with `start`, as "is a GGUF file ...; give ..."; empty if it
/// is none of the formats known here.
std::string foreign_file(std::string_view start);

/// The content of `folder` in place of a model's safetensors files, as "it holds ...: ..."; empty
/// if nothing is known. Folders and files that cannot be read count as empty.
std::string foreign_folder(const std::string& folder);

/// Whether Hugging Face's hub may have a model of that name: "gpt2", "Qwen/Qwen2.5-0.5B".
bool is_hub_name(std::string_view path);

/// What to give instead of `path`, which is no folder of a model that can be opened, as "; ..." to
/// end a message with: for a name of Hugging Face's hub, which no file has; a folder of the hub's
/// cache, which holds the model below; a folder or a file of weights in another format. Empty:
/// nothing known.
std::string folder_advice(const std::string& path);

/// How the part of a multimodal model that reads text becomes a model of its own, as ": ..." to end
/// a message with.
inline constexpr std::string_view kTextPart =
    ": have transformers save the text part: Gemma3ForCausalLM.from_pretrained(FOLDER)"
    ".save_pretrained(OUT), and give OUT";

/// Where a tensor comes from that a model cannot take, and what to do, as "; ..." to end a message
/// with: wrappers of modules, adapters, heads of other models, multimodal models, weights of 8
/// bits, shards that were not gathered. Empty: nothing known.
std::string tensor_advice(const FileTensor& tensor);

}  // namespace zero
