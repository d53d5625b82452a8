# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""transformers' generate with its key/value cache, in PyTorch.

usage: inference_transformers.py FOLDER fp32|bf16 THREADS
"""

import sys

import torch
import transformers

import inference_common


def main():
    folder, form, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    transformers.logging.set_verbosity_error()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[form]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def answer(prompts, tokens):
        ids = torch.tensor(prompts)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=tokens, min_new_tokens=tokens)
        return out[:, ids.shape[1]:].tolist()

    with torch.inference_mode():
        inference_common.report("transformers", transformers.__version__, answer)


if __name__ == "__main__":
    main()
