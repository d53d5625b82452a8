# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch in one process, on the CPU or a GPU: eager, or compiled with --compile; bf16 autocast, fused AdamW."""

import torch

import common
from gpt2 import Gpt2


def main():
    parser = common.options(__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vocabulary", type=int, default=50257, help="rows of the token table; 50304 is faster on GPUs")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_default_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    model = Gpt2(vocabulary=arguments.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(model) if arguments.compile else model

    def step():
        inputs, targets = common.random_tokens(arguments.batch, arguments.sequence)
        with torch.autocast(arguments.device, dtype=torch.bfloat16):
            loss = forward(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def barrier():
        if arguments.device == "cuda":
            torch.cuda.synchronize()

    name = "PyTorch compiled" if arguments.compile else "PyTorch eager"
    common.report(name, torch.__version__, common.timed(step, arguments.steps, barrier))


if __name__ == "__main__":
    main()
