# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed ZeRO over gloo at --stage, bf16, PyTorch's fused AdamW."""

import logging
import os

import deepspeed
import torch
import torch.multiprocessing as multiprocessing

import common
from gpt2 import Gpt2


def configuration(arguments):
    return {
        "train_micro_batch_size_per_gpu": max(1, arguments.batch // arguments.ranks),
        "zero_optimization": {"stage": arguments.stage, "overlap_comm": False},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-4, "weight_decay": 0.1, "torch_adam": True, "fused": True},
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def run(rank, arguments):
    common.join_group(rank, arguments.ranks, 29642)
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(arguments.threads))
    torch.set_num_threads(arguments.threads)
    deepspeed.utils.logger.setLevel(logging.ERROR)
    deepspeed.init_distributed("gloo")
    model = Gpt2()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration(arguments))
    rows = max(1, arguments.batch // arguments.ranks)

    def step():
        inputs, targets = common.random_tokens(rows, arguments.sequence)
        engine.backward(engine(inputs, targets))
        engine.step()

    seconds = common.timed(step, arguments.steps, deepspeed.comm.barrier)
    if rank == 0:
        name = f"DeepSpeed ZeRO-{arguments.stage}"
        common.report(name, deepspeed.__version__, seconds)


def main():
    parser = common.options(__doc__)
    parser.add_argument("--stage", type=int, default=3)
    arguments = parser.parse_args()
    multiprocessing.spawn(run, args=(arguments,), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
