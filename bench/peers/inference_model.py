# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M with random weights, twice: a Hugging Face folder, and GGUF files for llama.cpp.

usage: inference_model.py FOLDER

The codes of 8 and 4 bits, q8_0 and q4_0, are made by llama.cpp as its own program for it makes
them: in the file of q4_0 the embedding, which is the head too, has q6_K, 6.6 bits.
"""

import ctypes
import os
import sys

import gguf
import llama_cpp.llama_cpp as llama
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from inference_common import gguf_file, hugging_face_folder

STORED = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16}
QUANTIZED = {"8 bits": llama.LLAMA_FTYPE_MOSTLY_Q8_0, "4 bits": llama.LLAMA_FTYPE_MOSTLY_Q4_0}
OUTER = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
INNER = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
         "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def random_model():
    """No token ends an answer."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).eval()


def gguf_tensors(model):
    """(name, fp32 array); matrices (outputs, inputs), which transformers keeps transposed."""
    for name, value in model.transformer.state_dict().items():
        module, kind = name.rsplit(".", 1)
        if module in OUTER:
            yield f"{OUTER[module]}.{kind}", value.numpy()
        else:
            _, layer, part = module.split(".", 2)
            value = value.T if value.dim() > 1 else value
            yield f"blk.{layer}.{INNER[part]}.{kind}", value.numpy()


def write_gguf(path, model, kind):
    config = model.config
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    for name, array in gguf_tensors(model):
        stored = gguf.GGMLQuantizationType.F32
        if array.ndim > 1 and not name.startswith("position_embd"):
            stored = kind
        writer.add_tensor(name, gguf.quants.quantize(array.copy(), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(source, path, kind):
    parameters = llama.llama_model_quantize_default_params()
    parameters.ftype = kind
    if llama.llama_model_quantize(os.fsencode(source), os.fsencode(path),
                                  ctypes.byref(parameters)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantize {source} to {path}")


def main():
    folder = sys.argv[1]
    model = random_model()
    model.save_pretrained(hugging_face_folder(folder))
    for form, kind in STORED.items():
        write_gguf(gguf_file(folder, form), model, kind)
    for form, kind in QUANTIZED.items():
        quantize(gguf_file(folder, "fp32"), gguf_file(folder, form), kind)


if __name__ == "__main__":
    main()
