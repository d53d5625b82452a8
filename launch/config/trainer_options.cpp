// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

namespace zero {

std::vector<Option> trainer_options() {
  using enum ValueType;
  return {
      honour("data.train", text_list, "",
             "token shards, which zero_prepare makes of texts: a file, a list of files, a pattern "
             "with *, ? and [ ], or a folder, of which validation files are left out"),
      honour("data.validation", text_list, "null",
             "token shards for the validation loss; a folder: those with val, valid, validation or "
             "eval in their names. None is trained on"),
      honour("data.sequence_length", integer, "null", "tokens of a sequence; null: model.context")
          .from(1, 1e7),
      honour("data.shuffle", boolean, "false",
             "a seeded permutation of the sequences per epoch, the same for every world"),
      honour("data.tokenizer", text, "null",
             "\"bytes\", a SentencePiece .model, a tokenizer.json or a folder with one, saved with "
             "the weights for zero_generate; null: that in model.hf or run.init, or bytes where "
             "model.vocabulary is 256"),
      honour("run.steps", integer, "100", "optimizer steps to do").from(0),
      honour("run.seed", integer, "1", "of initial values and shuffling").from(0, 9e18),
      honour("run.threads", integer, "\"auto\"",
             "threads of each rank; \"auto\": the cores the job may use / ranks on this host")
          .from(1, 4096)
          .or_auto(),
      honour("run.device", text, "\"auto\"",
             "\"auto\": \"cuda\" where the build and the host have a GPU for each of its ranks")
          .one_of({"cpu", "cuda"})
          .or_auto(),
      honour(
          "run.sums", text, "\"exact\"",
          "how GPUs of several processes sum gradients: \"exact\", by the fixed tree in fp32, or "
          "\"fast\", as NCCL does, in the gradients' type")
          .one_of({"exact", "fast"}),
      honour("run.graphs", boolean, "true",
             "capture each block's forward and backward pass as a CUDA graph; false: launch every "
             "kernel by itself. No effect on a CPU"),
      honour("run.collective_warning", number, "30",
             "seconds that a rank waits in a collective before it says on standard error for "
             "which ranks, and again after 2, 4, 8 ... times as many; 0: never")
          .from(0, 1e6)
          .expecting("0 (never), or up to 1000000 seconds"),
      honour("run.collective_timeout", number, "600",
             "seconds that a rank waits in a collective before the job ends; 0: without end")
          .from(0, 1e6)
          .expecting("0 (without end), or up to 1000000 seconds"),
      honour("run.watchdog", boolean, "true",
             "each rank watches the ranks of its host: one that dies is named at once, one that "
             "hangs after run.hang_timeout, and the job ends"),
      honour("run.watchdog_hosts", boolean, "true",
             "the watchdogs of several hosts tell each other of their ranks, by connections from "
             "each host's first rank to the first host's; false: each host is on its own"),
      honour("run.hang_timeout", number, "0",
             "seconds in which a rank that others wait for must go on: within a step and in "
             "validation; in any phase if it is stopped, or if it does nothing but compute, 3 s at "
             "least; if no disk holds it up in load, save and end too, 10 s at least. 0: five mean "
             "steps, 3 s at least")
          .from(0, 1e6)
          .expecting("0 (five mean steps, 3 s at least), or 1 to 1000000 seconds"),
      honour("run.elastic", boolean, "false",
             "whatever number of ranks comes: the largest power of two of them that batch and mesh "
             "fit takes part, with the same bits; the others end at once, with status 0"),
      honour("run.nonfinite", text, "\"stop\"",
             "a loss or gradient that is NaN or infinite: end the run, or skip the step's update")
          .one_of({"stop", "skip"}),
      honour("run.nonfinite_limit", integer, "10",
             "with \"skip\": steps skipped in a row that end the run all the same")
          .from(1, 1e9),
      honour("run.log", text, "\"run.log\"", "JSON lines: one per step and a final one; null: none")
          .or_null(),
      honour("run.profile", boolean, "false",
             "time each kind of work of the first rank after step 1, by its device's clock, "
             "beside the device's limits; --profile is short for it"),
      honour("run.trace", text, "null",
             "write what all ranks' streams did to this file, for Perfetto or chrome://tracing; "
             "--trace FILE is short for it"),
      honour("run.trace_from", integer, "2",
             "first step of the trace, counted from the first that the program does")
          .from(1),
      honour("run.trace_steps", integer, "2", "steps of the trace").from(1),
      honour("run.trace_events", integer, "100000",
             "events kept of each stream of a rank, 32 bytes each; the newest stay")
          .from(1, 1e8),
      honour("run.flight_folder", text, "null",
             "folder of the ranks' flight files, which zero_doctor reads after a fault, and which "
             "go with a run that ends well; null: \"flight\" in run.checkpoint.folder, or else "
             "run.log with .flight; \"none\": in memory alone")
          .expecting("a path, \"none\" or null"),
      honour(
          "run.memory_growth", bytes, "null",
          "bytes by which a rank's memory behind a step may be above that behind the second step "
          "of this start: a number, or a text such as \"16MiB\"; null: any"),
      honour("run.memory_growth_action", text, "\"warn\"",
             "at more growth than that: name what grew and go on, or stop, with a checkpoint where "
             "the run saves any, and status 1; ranks ask each other every ten steps")
          .one_of({"warn", "stop"}),
      honour("run.memory_trace", text, "null",
             "write every charge and release of each rank's memory, with label, step and phase, to "
             "this file (of rank N: FILE.rankN), for zero_memory; --memory-trace FILE is short for "
             "it"),
      honour("run.memory_trace_bytes", bytes, "\"64MiB\"",
             "bytes of a rank's trace of memory, from 64KiB; of a longer one the newest half and "
             "more stay"),
      honour("run.init", text, "null",
             "start from the weights of this safetensors file or Hugging Face folder; null: "
             "model.hf, where given; \"none\": initial values all the same"),
      honour(
          "run.save_weights", text, "null",
          "write the weights to this safetensors file at the end, or, where it ends with a slash, "
          "as a Hugging Face folder"),
      honour("run.validation_every", integer, "0", "steps between validations; 0: only at the end")
          .from(0),
      honour("run.validation_sequences", integer, "0", "sequences of a validation; 0: all").from(0),
      only("run.sample", integer, "0",
           "zero_generate samples from what a run saves: zero_generate --model FOLDER --prompt "
           "TEXT, "
           "with the folder of run.checkpoint.folder or run.save_weights")
          .from(0),
      honour("train_batch_size", integer, "null",
             "sequences of a step = micro-batch x accumulation x world; what is missing of the "
             "three is inferred")
          .from(1, 1e12),
      honour("train_micro_batch_size_per_gpu", integer, "null",
             "sequences one rank computes at once")
          .from(1, 1e9),
      honour("gradient_accumulation_steps", integer, "null", "micro-batches of a rank in a step")
          .from(1, 1e9),
      honour("reduction", text, "\"every_micro_batch\"", "when gradients cross ranks")
          .one_of({"every_micro_batch", "boundary"}),
      honour("gradient_clipping", number, "1.0", "largest global gradient norm; 0: none").from(0),
      honour("data_types.grad_accum_dtype", text, "null",
             "of finished gradients; null: as computed")
          .one_of({"fp32", "bf16", "fp16"}),
      honour("steps_per_print", integer, "null",
             "steps between progress lines where standard output is not a terminal; null: about "
             "20 lines a run")
          .from(1),
      honour("run.check_collectives", boolean, "false",
             "compare checksums of what each rank sends and what each receives, in every "
             "collective; on CPUs"),
      honour("run.check_compute_every", integer, "0",
             "steps between checks of a drawn block, whose forward pass its rank and a "
             "data-parallel peer compute again: the same bits, or the host is named; 0: never; on "
             "CPUs")
          .from(0, 1e9),
  };
}

}  // namespace zero
