# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What the scripts of inference share: workloads, prompts, files, the line that a peer prints."""

import dataclasses
import json
import os
import random
import time

VOCABULARY = 50257  # GPT-2's
WARM_UP_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Workload:
    sequences: int  # answered at once
    prompt: int  # tokens of each prompt
    tokens: int  # generated behind each, greedily

    def prompts(self, seed):
        """Token ids, (sequences, prompt); no two of them begin alike."""
        ids = random.Random(seed)
        firsts = ids.sample(range(VOCABULARY), self.sequences)
        return [[first] + ids.choices(range(VOCABULARY), k=self.prompt - 1) for first in firsts]

    def counted(self):
        """Tokens whose rate is reported: of the prompts if only one is generated behind each."""
        return self.sequences * (self.prompt if self.tokens == 1 else self.tokens)


WORKLOADS = {
    "1 sequence": Workload(sequences=1, prompt=64, tokens=128),
    "16 sequences": Workload(sequences=16, prompt=64, tokens=64),
    "a prompt of 512": Workload(sequences=1, prompt=512, tokens=1),
}


def hugging_face_folder(folder):
    return os.path.join(folder, "gpt2")


def gguf_file(folder, form):
    return os.path.join(folder, f"gpt2-{form.replace(' ', '-')}.gguf")


def report(name, version, answer):
    """Runs each workload by `answer(prompts, tokens)`, which returns ids, and prints its seconds.

    Each is run once with other prompts and few tokens before, so that nothing is done a first time
    while the clock runs.
    """
    seconds, ids = {}, {}
    for key, workload in WORKLOADS.items():
        answer(workload.prompts(seed=1), min(WARM_UP_TOKENS, workload.tokens))
        prompts = workload.prompts(seed=2)
        begin = time.perf_counter()
        ids[key] = answer(prompts, workload.tokens)
        seconds[key] = time.perf_counter() - begin
    print(json.dumps({"name": name, "version": version, "seconds": seconds, "ids": ids}))
