# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over gloo: parameters, gradients and states sharded per block; bf16 compute, fp32 reduction."""

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import common
from gpt2 import Gpt2


def run(rank, arguments):
    common.join_group(rank, arguments.ranks, 29641)
    dist.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = Gpt2()
    mesh = init_device_mesh("cpu", (arguments.ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    rows = max(1, arguments.batch // arguments.ranks)

    def step():
        inputs, targets = common.random_tokens(rows, arguments.sequence)
        model(inputs, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = common.timed(step, arguments.steps, dist.barrier)
    if rank == 0:
        common.report("FSDP2", torch.__version__, seconds)
    dist.destroy_process_group()


def main():
    arguments = common.options(__doc__).parse_args()
    multiprocessing.spawn(run, args=(arguments,), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
