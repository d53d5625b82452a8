# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through llama-cpp-python's bindings of its C interface: batches hold any sequences.

usage: inference_llama.py FILE.gguf THREADS

The key/value cache is in fp16, and passes have at most 512 tokens, as llama.cpp has it by default.
"""

import os
import sys

import numpy
import llama_cpp.llama_cpp as llama
from llama_cpp import __version__

import inference_common


class Context:
    """Reads tokens of several sequences in one call, and chooses the most likely next ones."""

    def __init__(self, path, threads):
        workloads = inference_common.WORKLOADS.values()
        self.model = llama.llama_model_load_from_file(
            os.fsencode(path), llama.llama_model_default_params())
        parameters = llama.llama_context_default_params()
        parameters.n_seq_max = max(each.sequences for each in workloads)
        # A sequence has its own part of the cache: no pass looks at other sequences' tokens.
        parameters.n_ctx = parameters.n_seq_max * max(
            each.prompt + each.tokens for each in workloads)
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, parameters)
        self.batch = llama.llama_batch_init(parameters.n_ctx, 0, 1)
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def read(self, parts, position):
        """Of each sequence the next id behind its part; parts are at the same position."""
        lasts = []
        batch = self.batch
        batch.n_tokens = 0
        for sequence, part in enumerate(parts):
            for i, token in enumerate(part):
                at = batch.n_tokens
                batch.token[at] = token
                batch.pos[at] = position + i
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = i + 1 == len(part)
                batch.n_tokens += 1
            lasts.append(batch.n_tokens - 1)
        if llama.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        return [self.most_likely(last) for last in lasts]

    def most_likely(self, row):
        logits = llama.llama_get_logits_ith(self.context, row)
        return int(numpy.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def answer(self, prompts, tokens):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        columns = [self.read(prompts, 0)]
        for position in range(len(prompts[0]), len(prompts[0]) + tokens - 1):
            columns.append(self.read([[token] for token in columns[-1]], position))
        return [list(row) for row in zip(*columns)]


def instructions():
    """Of the instruction sets that matter here, the best that llama.cpp was built for."""
    built = llama.llama_print_system_info().decode()
    wanted = ["AMX_INT8", "AVX512_BF16", "AVX512", "AVX2"]
    return next((name for name in wanted if f"{name} = 1" in built), "no AVX2")


def main():
    path, threads = sys.argv[1:]
    silent = llama.llama_log_callback(lambda *_: None)  # must outlive its use
    llama.llama_log_set(silent, None)
    llama.llama_backend_init()
    context = Context(path, int(threads))
    inference_common.report(
        "llama.cpp", f"(llama-cpp-python {__version__}, {instructions()})", context.answer)


if __name__ == "__main__":
    main()
