# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_reference.h: parameters after ten steps of PyTorch's optimizers, in fp32 on the CPU.

    python tests/optim/make_torch_reference.py > tests/optim/torch_reference.h

Starting values and gradients are exact in fp32 and come from integer formulas that
tests/optim/test_torch.cpp repeats.
"""
import torch

COUNT, STEPS, RATE = 19, 10, 3e-3
CASES = {
    "adamw": (torch.optim.AdamW, dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)),
    "adamw_decay": (torch.optim.AdamW, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)),
    "adam": (torch.optim.Adam, dict(betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)),
    "adam_decay": (torch.optim.Adam, dict(betas=(0.8, 0.95), eps=1e-8, weight_decay=0.1)),
    "sgd": (torch.optim.SGD, dict(momentum=0.0, weight_decay=0.0)),
    "sgd_decay": (torch.optim.SGD, dict(momentum=0.0, weight_decay=0.1)),
    "momentum": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.0)),
    "momentum_decay": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.1)),
}


def start(i):
    return ((i * 7919 + 12345) % 20011 - 10005) / 8192


def gradient(i, step):
    return ((i * 104729 + step * 15485863 + 777) % 20011 - 10005) / 16384


def run(kind, options):
    parameter = torch.nn.Parameter(torch.tensor([start(i) for i in range(COUNT)]))
    optimizer = kind([parameter], lr=RATE, **options)
    for step in range(1, STEPS + 1):
        parameter.grad = torch.tensor([gradient(i, step) for i in range(COUNT)])
        optimizer.step()
    return parameter.detach().tolist()


def main():
    print("// SPDX-FileCopyrightText: The ZeRO engine authors")
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by make_torch_reference.py with PyTorch {torch.__version__.split('+')[0]}.")
    print("#pragma once\n\n#include <array>\n")
    print("namespace zero::testing::torch_reference {\n")
    print(f"inline constexpr int kCount = {COUNT};")
    print(f"inline constexpr int kSteps = {STEPS};")
    print(f"inline constexpr double kLearningRate = {RATE};\n")
    for name, (kind, options) in CASES.items():
        print(f"// {options}")
        values = ", ".join(f"{value:.9g}F" for value in run(kind, options))
        print(f"inline constexpr std::array<float, kCount> {name} = {{{values}}};\n")
    print("}  // namespace zero::testing::torch_reference")


if __name__ == "__main__":
    main()
