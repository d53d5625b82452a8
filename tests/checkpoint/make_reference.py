# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Writes reference.safetensors and gpt2_tiny.safetensors with Hugging Face's own library.

Needs torch and safetensors (recorded with 2.15 and 0.8.0): python make_reference.py. The tests read the recorded files.
"""

import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def reference():
    """Every dtype, a scalar, tensors without elements, a name that JSON escapes."""
    ramp = torch.arange(6, dtype=torch.float32).reshape(2, 3) * 0.5 - 1
    whole = torch.tensor([0, 1, 2, 3, 100])
    return {
        "f32": ramp,
        "bf16": ramp.to(torch.bfloat16),
        "f16": ramp.to(torch.float16),
        "f64": ramp.to(torch.float64),
        "c64": ramp.to(torch.complex64),
        "i64": whole.to(torch.int64),
        "i32": whole.to(torch.int32),
        "i16": whole.to(torch.int16),
        "i8": whole.to(torch.int8),
        "u64": whole.to(torch.uint64),
        "u32": whole.to(torch.uint32),
        "u16": whole.to(torch.uint16),
        "u8": whole.to(torch.uint8),
        "bool": whole > 1,
        "f8_e4m3": torch.ones(3).to(torch.float8_e4m3fn),
        "f8_e5m2": torch.ones(3).to(torch.float8_e5m2),
        "f8_e8m0": torch.ones(3).to(torch.float8_e8m0fnu),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 4),
        "empty inside": torch.zeros(2, 0, 3, dtype=torch.float16),
        'quote " and \\ and \n and \u00e9': torch.ones(1, dtype=torch.uint8),
    }


def gpt2_tiny():
    """Names as Hugging Face's GPT-2 has them, with its masks and tied head; values count up from 0 over the names in order."""
    width, layers, vocabulary, context = 4, 2, 10, 6
    shapes = {"transformer.wte.weight": (vocabulary, width), "transformer.wpe.weight": (context, width)}
    for layer in range(layers):
        shapes[f"transformer.h.{layer}.ln_1.weight"] = (width,)
        shapes[f"transformer.h.{layer}.attn.c_attn.weight"] = (width, 3 * width)
        shapes[f"transformer.h.{layer}.attn.c_attn.bias"] = (3 * width,)
    tensors, next_value = {}, 0
    for name, shape in shapes.items():
        count = torch.Size(shape).numel()
        tensors[name] = torch.arange(next_value, next_value + count, dtype=torch.float32).reshape(shape)
        next_value += count
    for layer in range(layers):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, context, context).tril().to(torch.uint8)
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    tensors["transformer.h.1.ln_1.weight"] = tensors["transformer.h.1.ln_1.weight"].to(torch.bfloat16)
    tensors["transformer.h.1.attn.c_attn.bias"] = tensors["transformer.h.1.attn.c_attn.bias"].to(torch.float16)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    return tensors


save_file(reference(), HERE / "reference.safetensors", metadata={"format": "pt"})
save_file(gpt2_tiny(), HERE / "gpt2_tiny.safetensors", metadata={"format": "pt"})
