# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch as the peers train it: fp32 parameters, tied head, fused attention, no dropout."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, sequence, width = x.shape  # (B, T, C)
        split = (batch, sequence, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(out.transpose(1, 2).reshape(batch, sequence, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.output(functional.gelu(self.hidden(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """124M by default; the vocabulary is not padded, as zero_train's is not."""

    def __init__(self, width=768, layers=12, heads=12, vocabulary=50257, context=1024):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
