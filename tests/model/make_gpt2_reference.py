# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch makes of a tiny GPT-2: losses and gradient norms of ten AdamW steps, some final weights.

Needs torch and safetensors; the tests read only what it wrote. Run: python make_gpt2_reference.py [FOLDER]
"""
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT = 2, 32, 4, 97, 40
BATCH, SEQUENCE, STEPS = 2, 33, 10
LEARNING_RATE, BETAS, DECAY, CLIP = 3e-3, (0.9, 0.95), 0.1, 1.0
KEPT = ["wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias", "h.1.ln_2.weight", "ln_f.bias"]


def initial_weights():
    torch.manual_seed(5)
    weights = {"wte.weight": torch.randn(VOCABULARY, WIDTH) * 0.1, "wpe.weight": torch.randn(CONTEXT, WIDTH) * 0.1}
    for i in range(LAYERS):
        for name, (rows, columns) in {"attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH),
                                      "mlp.c_fc": (WIDTH, 4 * WIDTH), "mlp.c_proj": (4 * WIDTH, WIDTH)}.items():
            weights[f"h.{i}.{name}.weight"] = torch.randn(rows, columns) * 0.1
            weights[f"h.{i}.{name}.bias"] = torch.randn(columns) * 0.1
    for name in [f"h.{i}.ln_{k}" for i in range(LAYERS) for k in (1, 2)] + ["ln_f"]:
        weights[f"{name}.weight"] = 1 + torch.randn(WIDTH) * 0.1
        weights[f"{name}.bias"] = torch.randn(WIDTH) * 0.1
    return weights


def norm(w, name, x):
    return torch.nn.functional.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)


def linear(w, name, x):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def attention(w, name, x):
    heads = [t.view(BATCH, SEQUENCE, HEADS, -1).transpose(1, 2) for t in linear(w, f"{name}.c_attn", x).split(WIDTH, 2)]
    q, k, v = heads
    scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    seen = torch.ones(SEQUENCE, SEQUENCE).tril().bool()
    mixed = scores.masked_fill(~seen, -math.inf).softmax(3) @ v
    return linear(w, f"{name}.c_proj", mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH))


def loss_of(w, tokens):
    x = w["wte.weight"][tokens[:, :-1]] + w["wpe.weight"][:SEQUENCE]
    for i in range(LAYERS):
        x = x + attention(w, f"h.{i}.attn", norm(w, f"h.{i}.ln_1", x))
        hidden = linear(w, f"h.{i}.mlp.c_fc", norm(w, f"h.{i}.ln_2", x))
        x = x + linear(w, f"h.{i}.mlp.c_proj", torch.nn.functional.gelu(hidden, approximate="tanh"))
    logits = norm(w, "ln_f", x) @ w["wte.weight"].T
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def run(weights, batches, dtype):
    w = {name: value.to(dtype).clone().requires_grad_() for name, value in weights.items()}
    decayed = [v for v in w.values() if v.dim() == 2]
    others = [v for v in w.values() if v.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  lr=LEARNING_RATE, betas=BETAS, eps=1e-8)
    losses, norms = [], []
    for tokens in batches:
        loss = loss_of(w, tokens)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return losses, norms, w


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "data")
    weights = initial_weights()
    generator = torch.Generator().manual_seed(6)
    # Two batches in turn: something to learn by heart, so that the losses fall.
    two = [torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1), generator=generator) for _ in range(2)]
    batches = [two[step % 2] for step in range(STEPS)]
    record = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "vocabulary": VOCABULARY, "context": CONTEXT,
              "batch": BATCH, "sequence": SEQUENCE, "learning_rate": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1],
              "weight_decay": DECAY, "clip": CLIP, "torch": torch.__version__,
              "tokens": [b.flatten().tolist() for b in batches]}
    for dtype, label in ((torch.float32, "fp32"), (torch.float64, "fp64")):
        losses, norms, final = run(weights, batches, dtype)
        record[label] = {"losses": losses, "gradient_norms": norms}
    save_file({n: v.contiguous() for n, v in weights.items()}, folder / "gpt2_initial.safetensors")
    save_file({n: final[n].detach().float().contiguous() for n in KEPT}, folder / "gpt2_final.safetensors")
    (folder / "gpt2_reference.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
