# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Records what Hugging Face's GPT-2, Llama, Qwen2, Qwen3, Gemma 3 and Mistral answer: folders as transformers writes them, logits of every position
of a prompt, and 200 greedy tokens behind it, in fp32 and without ties.

Needs torch, transformers 5 and safetensors; the tests read only what it wrote. Run: python make_generation_reference.py [FOLDER [NAME...]]
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

PROMPT, NEW = 40, 200
# Two logits this near could change places between two libraries' sums.
LEAST_GAP = 1e-3
SIZES = dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40, vocab_size=61, bos_token_id=None, eos_token_id=None,
             max_position_embeddings=256, attn_implementation="eager")


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=24, n_head=4, n_positions=256, vocab_size=61, bos_token_id=None, eos_token_id=None,
                                      attn_implementation="eager"))


def llama():
    rope = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=64)
    return LlamaForCausalLM(LlamaConfig(head_dim=8, tie_word_embeddings=False, rope_parameters=rope, **SIZES))


def qwen2():
    return Qwen2ForCausalLM(Qwen2Config(rms_norm_eps=1e-6, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000.0), **SIZES))


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(rms_norm_eps=1e-6, head_dim=8, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000.0), **SIZES))


def gemma3():
    """A window shorter than the prompt, in one layer of two. A tied head would answer each token with itself."""
    rope = dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                full_attention=dict(rope_type="default", rope_theta=1000.0))
    return Gemma3ForCausalLM(Gemma3TextConfig(head_dim=8, rms_norm_eps=1e-6, query_pre_attn_scalar=12, sliding_window=24,
                                              tie_word_embeddings=False,
                                              layer_types=["sliding_attention", "full_attention"], rope_parameters=rope,
                                              **{**SIZES, "pad_token_id": None}))


def mistral():
    return MistralForCausalLM(MistralConfig(sliding_window=None, tie_word_embeddings=False,
                                            rope_parameters=dict(rope_type="default", rope_theta=1000.0), **SIZES))


def qwen2_window():
    """The second of three layers on are local."""
    sizes = dict(SIZES, num_hidden_layers=3)
    return Qwen2ForCausalLM(Qwen2Config(rms_norm_eps=1e-6, tie_word_embeddings=True, use_sliding_window=True, sliding_window=24,
                                        max_window_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1000.0), **sizes))


def mistral_window():
    return MistralForCausalLM(MistralConfig(sliding_window=19, tie_word_embeddings=False,
                                            rope_parameters=dict(rope_type="default", rope_theta=1000.0), **SIZES))


def spread(model, seed):
    """Weights large enough that answers do not fall into one short circle at once; bf16 holds them exactly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            of_one = model.config.model_type != "gemma3_text" and "norm" in name
            around = 1.0 if of_one or "ln_" in name and "weight" in name else 0.0
            value.copy_((around + torch.randn(value.shape, generator=generator) * 0.3).bfloat16().float())


def answer(model, prompt):
    """Greedy tokens by whole forward passes, and the least gap between the two largest logits."""
    tokens, gap = prompt.clone(), float("inf")
    with torch.no_grad():
        for _ in range(NEW):
            best = torch.topk(model(input_ids=tokens[None]).logits[0, -1], 2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            tokens = torch.cat([tokens, best.indices[:1]])
    return tokens[len(prompt):], gap


def record(folder, make):
    for seed in range(1000):
        model = make().eval()
        spread(model, seed)
        prompt = torch.randint(0, 61, (PROMPT,), generator=torch.Generator().manual_seed(seed))
        tokens, gap = answer(model, prompt)
        if gap >= LEAST_GAP and len(set(tokens.tolist())) > 20:
            break
    else:
        sys.exit(f"{folder.name}: every seed has two logits nearer than {LEAST_GAP}")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        logits = model(input_ids=prompt[None]).logits[0]
    # The library's own generate(), with its cache, gives the same.
    generated = model.generate(prompt[None], attention_mask=torch.ones(1, PROMPT, dtype=torch.long), max_new_tokens=NEW,
                               do_sample=False)[0, PROMPT:]
    assert torch.equal(generated, tokens), folder.name
    save_file({"logits": logits.float().contiguous()}, folder / "logits.safetensors")
    (folder / "reference.json").write_text(json.dumps(
        {"torch": torch.__version__, "transformers": transformers.__version__, "seed": seed, "gap": gap, "prompt": prompt.tolist(),
         "greedy": tokens.tolist()}) + "\n")
    print(f"{folder.name}: seed {seed}, {len(set(tokens.tolist()))} different tokens, gap {gap:.4f}")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "reference")
    makers = {make.__name__: make for make in (gpt2, llama, qwen2, qwen3, gemma3, mistral, qwen2_window, mistral_window)}
    for name in sys.argv[2:] or makers:
        record(folder / name, makers[name])


if __name__ == "__main__":
    main()
