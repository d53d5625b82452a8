# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's boundary of a step of GPT-2 124M: clip_grad_norm_, fused AdamW, bf16 copy.

usage: boundary.py [threads] [rounds]

Prints one line of JSON: median and best seconds, and parameters a second.
"""
import json
import sys
import time

import torch


def parameters():
    c = 768
    block = [(c,), (c,), (3 * c, c), (3 * c,), (c, c), (c,), (c,), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,)]
    return [torch.nn.Parameter(torch.full(shape, 0.02)) for shape in [(50257, c), (1024, c)] + 12 * block + [(c,), (c,)]]


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    torch.set_num_threads(threads)
    masters = parameters()
    copies = [p.detach().bfloat16() for p in masters]
    for p in masters:
        p.grad = torch.full_like(p, 1e-4)
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(copies, masters)
        seconds.append(time.perf_counter() - start)
    seconds = sorted(seconds[1:])
    count = sum(p.numel() for p in masters)
    median = seconds[len(seconds) // 2]
    print(json.dumps({"name": "PyTorch: clip, fused AdamW, bf16 copy", "threads": threads, "parameters": count,
                      "median_seconds": median, "best_seconds": seconds[0], "parameters_per_second": count / median}))


if __name__ == "__main__":
    main()
