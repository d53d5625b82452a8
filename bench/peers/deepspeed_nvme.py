# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizer states on NVMe (ZeRO-3, one rank), bf16, its own AdamW, in --folder.

Prints the seconds of whole steps and those of their updates. Needs libaio-dev, a C++ compiler, and ninja on PATH for its
async_io extension: it ends with the reason, and status 3, where the package cannot offload on a CPU.
"""

import logging
import os
import sys
import time

import deepspeed
import torch

import common
from gpt2 import Gpt2

CANNOT = 3


def configuration(arguments):
    return {
        "train_micro_batch_size_per_gpu": arguments.batch,
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": False,
            "offload_optimizer": {
                "device": "nvme",
                "nvme_path": arguments.folder,
                "buffer_count": arguments.buffers,
                "pin_memory": False,
                "pipeline_read": True,
                "pipeline_write": True,
            },
        },
        "aio": {"block_size": arguments.block, "queue_depth": arguments.depth, "single_submit": False,
                "overlap_events": True},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
    }


def engine_of(arguments):
    model = Gpt2()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration(arguments))
    return engine


def main():
    parser = common.options(__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--block", type=int, default=1 << 20, help="bytes of a request")
    parser.add_argument("--depth", type=int, default=8, help="requests in flight")
    parser.add_argument("--buffers", type=int, default=4)
    arguments = parser.parse_args()
    common.join_group(0, 1, 29643)
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(arguments.threads))
    torch.set_num_threads(arguments.threads)
    deepspeed.utils.logger.setLevel(logging.ERROR)
    deepspeed.init_distributed("gloo")

    updates = []

    def step():
        inputs, targets = common.random_tokens(arguments.batch, arguments.sequence)
        engine.backward(engine(inputs, targets))
        begin = time.perf_counter()
        engine.step()
        updates.append(time.perf_counter() - begin)

    try:
        engine = engine_of(arguments)
        seconds = common.timed(step, arguments.steps)
    except Exception as error:  # of many kinds: the extension, the accelerator, the swapper
        print(f"DeepSpeed {deepspeed.__version__} cannot keep states on NVMe here: {error!r}", file=sys.stderr)
        sys.exit(CANNOT)
    common.report("DeepSpeed ZeRO-3, states on NVMe", deepspeed.__version__, seconds)
    common.report("the update alone", deepspeed.__version__, updates[-len(seconds):])


if __name__ == "__main__":
    main()
