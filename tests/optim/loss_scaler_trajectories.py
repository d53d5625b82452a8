# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Loss scales after each of a list of steps, as DeepSpeed and PyTorch would choose them.

A model of the two published rules, written as histories rather than as counters: every step asks the
whole list of outcomes before it. Prints the tables of test_loss_scaler.cpp. With --torch, PyTorch's
GradScaler itself is run beside its model (on a CPU).

  python3 tests/optim/loss_scaler_trajectories.py [--torch]
"""
import argparse

# 'x': an overflow; '.': none.
STEPS = "....x..x.x....xx.......x.x.x.x.x.....xxxx..........x"


def runs_of_good(outcomes):
    """Good steps at the end of a list of outcomes."""
    return len(outcomes) - len(outcomes.rstrip("."))


def deepspeed(steps, scale, window, hysteresis, consecutive, minimum):
    """Scales after each step; ends with "error" at an overflow that finds the minimum."""
    scales = []
    credit = hysteresis
    for i, outcome in enumerate(steps):
        if outcome == "x":
            if credit > 1:
                credit -= 1
            elif scale == minimum:
                return scales + ["error"]
            else:
                scale = max(scale / 2, minimum)
        else:
            before = runs_of_good(steps[:i])  # this step is not counted: growth comes one later
            if before > 0 and before % window == 0:
                scale *= 2
                credit = hysteresis
            if consecutive:
                credit = hysteresis
        scales.append(scale)
    return scales


def grad_scaler(steps, scale, interval):
    scales = []
    last_growth_or_overflow = -1
    for i, outcome in enumerate(steps):
        if outcome == "x":
            scale /= 2
            last_growth_or_overflow = i
        elif i - last_growth_or_overflow == interval:
            scale *= 2
            last_growth_or_overflow = i
        scales.append(scale)
    return scales


def torch_scales(steps, scale, interval):
    import torch

    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scales = []
    for outcome in steps:
        weight.grad = None
        scaler.scale(weight.sum() * (float("inf") if outcome == "x" else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def show(name, scales):
    print(f"{name}: " + " ".join(s if isinstance(s, str) else f"{s:g}" for s in scales))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true", help="run PyTorch's GradScaler too")
    arguments = parser.parse_args()
    show("DeepSpeed, window 3, hysteresis 2", deepspeed(STEPS, 64, 3, 2, False, 1))
    show("the same, consecutive", deepspeed(STEPS, 64, 3, 2, True, 1))
    show("window 1, hysteresis 1, minimum 8", deepspeed(STEPS, 64, 1, 1, False, 8))
    show("hysteresis 3, minimum 12", deepspeed(STEPS, 64, 4, 3, False, 12))
    show("GradScaler, interval 3", grad_scaler(STEPS, 64, 3))
    if arguments.torch:
        assert torch_scales(STEPS, 64.0, 3) == grad_scaler(STEPS, 64, 3)
        print("PyTorch's own GradScaler gives the same scales")


if __name__ == "__main__":
    main()
