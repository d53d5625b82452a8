# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Records what Hugging Face's Llama, Qwen2, Qwen3, Mistral and Gemma 3 make of tiny models: folders as transformers
writes them, losses and gradient norms of AdamW steps, and all final weights.

Needs torch, transformers 5 and safetensors; the tests read only what it wrote.
Run: python make_hf_reference.py [FOLDER [NAME...]]
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

BATCH, SEQUENCE = 2, 33
# Ten steps of fp32 stay within 4e-7 of fp64's norms at this rate; at 3e-3 rounding grows to 2.8e-6, more than is to be held.
LEARNING_RATE, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.95), 0.1, 1.0
SIZES = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40, vocab_size=61,
             max_position_embeddings=64)


def llama():
    """Heads that do not add up to the width, Llama 3's scaling with a blend among its few frequencies, its own head."""
    rope = dict(rope_type="llama3", rope_theta=200.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32)
    return LlamaForCausalLM(LlamaConfig(hidden_size=24, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=False,
                                        rope_parameters=rope, attn_implementation="eager", **SIZES))


def qwen2():
    return Qwen2ForCausalLM(Qwen2Config(hidden_size=24, rms_norm_eps=1e-6, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
                                        attn_implementation="eager", **SIZES))


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(hidden_size=24, head_dim=8, rms_norm_eps=1e-6, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
                                        attn_implementation="eager", **SIZES))


def qwen2_window():
    """The second of three layers on are local."""
    sizes = dict(SIZES, num_hidden_layers=3)
    return Qwen2ForCausalLM(Qwen2Config(hidden_size=24, rms_norm_eps=1e-6, tie_word_embeddings=True,
                                        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
                                        use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                        attn_implementation="eager", **sizes))


def mistral_window():
    return MistralForCausalLM(MistralConfig(hidden_size=24, head_dim=8, rms_norm_eps=1e-5, sliding_window=7,
                                            rope_parameters=dict(rope_type="default", rope_theta=1000.0),
                                            attn_implementation="eager", **SIZES))


def gemma3():
    """A local layer and a global one, whose angles differ; scores scaled by neither's head width. No token pads: its embedding would
    have no gradient."""
    rope = dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                full_attention=dict(rope_type="default", rope_theta=1000.0))
    return Gemma3ForCausalLM(Gemma3TextConfig(hidden_size=24, head_dim=8, rms_norm_eps=1e-6, query_pre_attn_scalar=12, pad_token_id=None,
                                              sliding_window=9, layer_types=["sliding_attention", "full_attention"],
                                              rope_parameters=rope, attn_implementation="eager", **SIZES))


def spread(model):
    """Weights far enough from their start to matter, that bf16 holds exactly."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in model.named_parameters():
            around = 1.0 if "norm" in name and model.config.model_type != "gemma3_text" else 0.0
            value.copy_((around + torch.randn(value.shape, generator=generator) * 0.1).bfloat16().float())


def run(model, batches, dtype):
    model = model.to(dtype)
    model.train()
    decayed = [v for v in model.parameters() if v.dim() == 2]
    others = [v for v in model.parameters() if v.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  lr=LEARNING_RATE, betas=BETAS, eps=1e-8)
    losses, norms = [], []
    for tokens in batches:
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(model.parameters()), CLIP)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return {"losses": losses, "gradient_norms": norms}


def record(folder, make, steps, **saving):
    folder.mkdir(parents=True, exist_ok=True)
    model = make()
    spread(model)
    initial = {n: v.detach().clone() for n, v in model.state_dict().items()}
    model.to(saving.pop("dtype")).save_pretrained(folder, **saving)
    (folder / "generation_config.json").unlink(missing_ok=True)
    generator = torch.Generator().manual_seed(6)
    # Two batches in turn: something to learn by heart, so that the losses fall.
    two = [torch.randint(0, SIZES["vocab_size"], (BATCH, SEQUENCE + 1), generator=generator) for _ in range(2)]
    batches = [two[step % 2] for step in range(steps)]
    result = {"batch": BATCH, "sequence": SEQUENCE, "learning_rate": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1],
              "weight_decay": DECAY, "clip": CLIP, "torch": torch.__version__, "transformers": transformers.__version__,
              "tokens": [b.flatten().tolist() for b in batches]}
    for dtype, label in ((torch.float32, "fp32"), (torch.float64, "fp64")):
        model = make()  # anew: a conversion also rounds the table of the rotary embeddings
        model.load_state_dict(initial)
        result[label] = run(model, batches, dtype)
    save_file({n: v.detach().float().contiguous() for n, v in model.named_parameters()}, folder / "final.safetensors")
    (folder / "reference.json").write_text(json.dumps(result) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    models = {"llama_tiny": (llama, 10, dict(dtype=torch.float32)),
              "qwen2_tiny": (qwen2, 10, dict(dtype=torch.bfloat16, max_shard_size="12KB")),
              "qwen3_tiny": (qwen3, 12, dict(dtype=torch.float32)),
              "qwen2_window": (qwen2_window, 12, dict(dtype=torch.bfloat16)),
              "mistral_window": (mistral_window, 12, dict(dtype=torch.bfloat16)),
              "gemma3_tiny": (gemma3, 12, dict(dtype=torch.float32))}
    for name in sys.argv[2:] or models:
        make, steps, saving = models[name]
        record(folder / name, make, steps, **saving)


if __name__ == "__main__":
    main()
