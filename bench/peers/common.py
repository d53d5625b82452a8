# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What the peer scripts share: their options, random tokens, the clock, the one line they print."""

import argparse
import json
import os
import time

import torch


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step, over all ranks")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5, help="timed steps, after two that warm up")
    parser.add_argument("--threads", type=int, default=2, help="of each rank")
    return parser


def random_tokens(batch, sequence):
    return torch.randint(0, 50257, (batch, sequence)), torch.randint(0, 50257, (batch, sequence))


def timed(step, steps, barrier=lambda: None):
    """Seconds of each of `steps` calls, after two that warm up."""
    seconds = []
    for _ in range(steps + 2):
        barrier()
        begin = time.perf_counter()
        step()
        barrier()
        seconds.append(time.perf_counter() - begin)
    return seconds[2:]


def report(name, version, seconds):
    print(json.dumps({"name": name, "version": version, "seconds": seconds}), flush=True)


def join_group(rank, ranks, port):
    """Environment of a rank on this host, as torchrun sets it."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks))
