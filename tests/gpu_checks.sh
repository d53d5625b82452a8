# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The checks of tests/gpu.sh, which reads this file: functions whose last line of output is their note
# in the table. They find programs in $bin, packed libraries in $packed, write what they need into $work,
# and what is to be kept into $results.

# What compute-sanitizer runs, some ten times slower: the tests of our own kernels, which load none of the vendors'
# libraries where that can be helped, but for those of long sequences and arrays.
readonly kSmall='CudaKernels.*:*CudaOptimizer*:*SmallMoments*:*Rows*:RotaryAngles*:*CausalAttention*:GpuInferenceOps.*-*_t130_*:*_t150_*:*_t300_*:*_t800_*:*ConvertEvery*:*InAnyPassesAndBlocks:*AnyNumberOfColumns:*NumberOfRows'

readonly kNotMade=77  # the status of a check whose tool the host lacks

# ---- training ----

write_tokens() {  # file, how many: in the format of token files, with a pattern to learn
  python3 - "$1" "$2" <<'PYTHON'
import struct, sys
count = int(sys.argv[2])
tokens = [(i * i // 7 + i * 31) % 50257 if i % 3 else (i // 3) % 977 for i in range(count)]
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
    file.write(struct.pack(f"<{count}H", *tokens))
PYTHON
}

write_config() {  # name, model, sequence, micro-batch, batch, bf16
  cat >"$work/$1.json" <<JSON
{"model": $2, "data": {"train": "$work/tokens.bin", "sequence_length": $3},
 "run": {"steps": 10, "seed": 7, "log": "$work/$1.log"},
 "train_batch_size": $5, "train_micro_batch_size_per_gpu": $4, "bf16": {"enabled": $6},
 "zero_optimization": {"stage": 0}, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}}
JSON
}

write_inputs() {
  write_tokens "$work/tokens.bin" 600000 &&
  write_config gpt2 '"gpt2-124m"' 256 4 4 false &&
  write_config whole '"gpt2-124m"' 1024 32 32 true &&
  write_config wide '"gpt2-124m"' 1024 64 64 true &&
  write_config llama '{"family": "llama", "layers": 28, "width": 1536, "heads": 12, "kv_heads": 2, "intermediate": 8960, "context": 1024, "vocabulary": 151936, "head": "tied"}' 1024 8 8 true &&
  write_config qwen2 '{"family": "llama", "layers": 24, "width": 896, "heads": 14, "kv_heads": 2, "intermediate": 4864, "context": 1024, "vocabulary": 151936, "head": "tied", "qkv_bias": true}' 1024 16 16 true &&
  write_config qwen3 '{"family": "llama", "layers": 28, "width": 1024, "heads": 16, "kv_heads": 8, "head_width": 128, "intermediate": 3072, "context": 1024, "vocabulary": 151936, "head": "tied", "head_norms": true}' 1024 16 16 true &&
  write_config gemma3 '{"family": "gemma3", "layers": 18, "width": 640, "heads": 4, "kv_heads": 1, "head_width": 256, "intermediate": 2048, "context": 1024, "vocabulary": 262144, "window": 512, "local_layers": "0-4,6-10,12-16"}' 1024 16 16 true &&
  write_config long '{"family": "llama", "layers": 8, "width": 1024, "heads": 16, "kv_heads": 4, "intermediate": 3584, "context": 16384, "vocabulary": 50304}' 16384 2 2 true &&
  write_config learns_qwen3 '{"family": "llama", "layers": 4, "width": 256, "heads": 4, "kv_heads": 2, "head_width": 64, "intermediate": 768, "context": 256, "vocabulary": 50304, "head_norms": true}' 256 4 4 false &&
  write_config learns_gemma3 '{"family": "gemma3", "layers": 4, "width": 256, "heads": 2, "kv_heads": 1, "head_width": 256, "intermediate": 768, "context": 256, "vocabulary": 50304, "window": 64, "local_layers": "0-2"}' 256 4 4 false &&
  write_config learns_window '{"family": "llama", "layers": 4, "width": 256, "heads": 4, "kv_heads": 2, "intermediate": 768, "context": 256, "vocabulary": 50304, "window": 64}' 256 4 4 false &&
  write_config small '{"family": "gpt2", "layers": 4, "width": 256, "heads": 4, "context": 128, "vocabulary": 50304}' 128 2 16 true
}

train() {  # config, log, arguments...
  local config=$1 log=$2
  shift 2
  "$bin/zero_train" --config "$work/$config.json" --set run.log="$results/$log" "$@"
}

# The same of a run whose attention cuDNN computes: our own kernels, slower, give about the same losses.
train_with_cudnn() {  # as train
  train "$@" | tee "$work/train.out" || return 1
  if grep -q 'computed by our own kernels' "$work/train.out"; then
    sed -n 's/^.*computed by our own kernels, which are slower: /attention is our own: /p' "$work/train.out"
    return 1
  fi
}

# Writes what is used of the GPU, in MiB, every second, for two minutes at most.
watch_memory() {  # file
  local i
  for ((i = 0; i < 120; ++i)); do
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | sort -n | tail -n 1
    sleep 1
  done >"$1"
}

# Steps of a model in bf16, in figures; attention must be cuDNN's.
whole_steps() {  # config, log's name, arguments...
  local config=$1 name=$2 watcher status
  shift 2
  watch_memory "$work/$name.mib" &
  watcher=$!
  train_with_cudnn "$config" "$name.jsonl" "${kOnGpu[@]}" "$@"
  status=$?
  kill $watcher
  [ $status = 0 ] || return 1
  python3 - "$results/$name.jsonl" "$work/$name.mib" <<'PYTHON'
import json, statistics, sys
*steps, last = [json.loads(line) for line in open(sys.argv[1])]
most = max((int(line) for line in open(sys.argv[2]) if line.strip().isdigit()), default=0)
late = steps[3:]
print(last["graphs"]["text"])
print(f"{statistics.median(step['tokens_per_second'] for step in late):.0f} tokens/s, "
      f"{1e3 * statistics.median(step['step_seconds'] for step in late):.2f} ms a step, "
      f"{1e3 * statistics.median(step['submit_seconds'] for step in late):.2f} ms of the host, {most} MiB, "
      f"loss {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}")
PYTHON
}

graphs_change_no_bit() {
  python3 - "$results/graphs_true.jsonl" "$results/graphs_false.jsonl" <<'PYTHON'
import json, sys
def read(name):
    *steps, last = [json.loads(line) for line in open(name)]
    return last, [step["loss"] for step in steps]
(kept, losses), (other, same) = read(sys.argv[1]), read(sys.argv[2])
if kept["state_hash"] != other["state_hash"] or losses != same:
    sys.exit(f"graphs change bits: {kept['state_hash']} and {other['state_hash']}, losses {losses} and {same}")
if kept["graphs"]["passes"] != 24 or other["graphs"]["passes"] != 0:
    sys.exit(f"expected 24 passes in graphs and none without, found {kept['graphs']} and {other['graphs']}")
print(f"state {kept['state_hash']} with graphs and without")
PYTHON
}

# Python that reads the log NAME.jsonl of a run of the folder in its first argument: read(name) gives the last line, the
# losses, and the seconds of a late step.
readonly kReadLog='
import json, statistics, sys
def read(name):
    *steps, last = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.jsonl")]
    skipped = [step["step"] for step in steps if "skipped" in step]
    if skipped:
        sys.exit(f"{name}: the update was skipped in steps {skipped}")
    return last, [step["loss"] for step in steps], statistics.median(step["step_seconds"] for step in steps[3:])
'

# The same step with activations computed again: the state without, the time and the memory of each. GELU computed again
# has other last bits.
recompute_changes_no_bit() {
  local mode
  for mode in recompute=full recompute=selective keep_outputs=false; do
    train whole "$mode.jsonl" "${kOnGpu[@]}" --set "activation_checkpointing.$mode" || return 1
  done
  python3 <(echo "$kReadLog"; cat <<'PYTHON'
kept, losses, seconds = read("graphs_true")
for name in ("recompute=full", "recompute=selective", "keep_outputs=false"):
    last, same, taken = read(name)
    alike = last["state_hash"] == kept["state_hash"] and same == losses
    if name == "keep_outputs=false":
        alike = max(abs(a / b - 1) for a, b in zip(same, losses)) < 1e-3
    if not alike or not last["plan_exact"]:
        sys.exit(f"{name}: state {last['state_hash']}, without {kept['state_hash']}; exact {last['plan_exact']}")
    mib = [each["memory"]["activations"]["peak"] / 2**20 for each in (kept, last)]
    print(f"{name}: {taken / seconds:.3f} times the step, activations {mib[1]:.0f} of {mib[0]:.0f} MiB")
PYTHON
  ) "$results"
}

# The same step in fp16, and with moments in bf16 and in 8 bits: about the same losses, the time and the memory of each.
formats_learn_alike() {
  local keys formats=("fp16.enabled=true bf16.enabled=false" optimizer.params.moments=bf16 optimizer.params.moments=8bit)
  for keys in "${formats[@]}"; do
    # shellcheck disable=SC2086  # two keys are two words
    train_with_cudnn whole "${keys%% *}.jsonl" "${kOnGpu[@]}" --set run.steps=6 $keys || return 1
  done
  python3 <(echo "$kReadLog"; cat <<'PYTHON'
kept, losses, seconds = read("graphs_true")
for name in sys.argv[2:]:
    last, others, taken = read(name)
    mib = [each["memory"]["optimizer"]["peak"] / 2**20 for each in (kept, last)]
    print(f"{name}: {taken / seconds:.3f} times the step, optimizer {mib[1]:.0f} of {mib[0]:.0f} MiB, loss {others[-1]:.4f}")
    if max(abs(a - b) / b for a, b in zip(others, losses)) > 1e-3 or not last["plan_exact"]:
        sys.exit(f"{name}: losses {others}, expected within 0.1 % of {losses}; exact {last['plan_exact']}")
PYTHON
  ) "$results" "${formats[@]%% *}"
}

# The same step with values below the GPU's memory: optimizer states and, at stage 3, shards of parameters in pinned host
# memory and in a file, kept inputs of blocks in pinned host memory. The state without, and the time of each.
lower_tiers_change_no_bit() {
  local zero=zero_optimization name
  local states="$zero.offload_optimizer" shards="$zero.stage=3 $zero.offload_param"
  local full=activation_checkpointing.recompute=full
  local -A keys=([none]="$full" [states]="$states.device=cpu $full" [inputs]="$full ${full%.*}.cpu_checkpointing=true"
    [shards]="$full $states.device=cpu $shards.device=cpu"
    [files]="$full $states.device=nvme $shards.device=nvme $states.nvme_path=$work")
  for name in none states inputs shards files; do
    # shellcheck disable=SC2086  # each key is a word
    train_with_cudnn whole "tiers_$name.jsonl" "${kOnGpu[@]}" --set run.steps=6 ${keys[$name]} || return 1
  done
  python3 <(echo "$kReadLog"; cat <<'PYTHON'
kept, losses, seconds = read("tiers_none")
found = []
for name in ("states", "inputs", "shards", "files"):
    last, same, taken = read(f"tiers_{name}")
    if last["state_hash"] != kept["state_hash"] or same != losses or not last["plan_exact"]:
        sys.exit(f"{name}: state {last['state_hash']}, without {kept['state_hash']}; exact {last['plan_exact']}")
    found.append(f"{name} {taken / seconds:.3f}")
print(f"state {kept['state_hash']} with and without; times the step: {', '.join(found)}")
PYTHON
  ) "$results"
}

# The kernels of a step of GPT-2 124M, each by itself, as Nsight Compute times them: about a block's, forward and backward.
kernels_of_a_block() {
  local program
  program=$(command -v ncu || ls /usr/local/cuda/bin/ncu 2>/dev/null) ||
    { echo "ncu is not on this host; CUDA's toolkit brings it"; return "$kNotMade"; }
  "$program" --clock-control none --section SpeedOfLight --launch-skip 900 --launch-count 60 --log-file "$results/kernels.txt" \
    "$bin/zero_train" --config "$work/whole.json" --set run.log=null run.steps=4 run.graphs=false "${kOnGpu[@]}"
  local status=$?
  cat "$results/kernels.txt"
  if grep -E 'ERR_NVGPUCTRPERM|not supported' "$results/kernels.txt"; then return "$kNotMade"; fi
  echo "$(grep -c 'Section: GPU Speed Of Light' "$results/kernels.txt") kernels, in kernels.txt"
  return $status
}

# The operations that take longest in a step.
a_step_is_profiled() {  # config
  train "$1" "profile_$1.jsonl" "${kOnGpu[@]}" --set run.steps=4 --profile || return 1
  python3 - "$results/profile_$1.jsonl" <<'PYTHON'
import json, sys
profile = json.loads(open(sys.argv[1]).readlines()[-1])["profile"]
steps, work = profile["steps"], profile["work"]
covered = sum(entry["seconds"] for entry in work)
print(f"{1e3 * profile['seconds'] / steps:.2f} ms a step, {100 * covered / profile['seconds']:.1f} % of it in operations; "
      f"products {profile['product_flop_per_second'] * 1e-12:.0f} TFLOP/s, "
      f"copies {profile['memory_bytes_per_second'] * 1e-9:.0f} GB/s")
sys.exit(not 0 < covered <= 1.001 * profile["seconds"])
PYTHON
}

losses_are_the_cpus() {
  train gpt2 cpu.jsonl --set run.device=cpu || return 1
  train gpt2 gpu.jsonl "${kOnGpu[@]}" || return 1
  python3 - "$results/cpu.jsonl" "$results/gpu.jsonl" <<'PYTHON'
import json, sys
cpu, gpu = ([json.loads(line)["loss"] for line in open(name) if '"loss"' in line] for name in sys.argv[1:])
for step, (a, b) in enumerate(zip(cpu, gpu), 1):
    print(f"step {step:2}: CPU {a:.6f}, GPU {b:.6f}, {abs(a - b) / abs(a):.1e} apart")
apart = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu))
print(f"{len(gpu)} steps, losses {gpu[0]:.4f} to {gpu[-1]:.4f}, at most {apart:.1e} apart")
sys.exit(len(cpu) != len(gpu) or len(gpu) < 10 or apart > 2e-3)
PYTHON
}

# Ten steps of small models with norms of heads, heads of 256 and windows: in fp32, whose attention is our own, the CPU's
# losses; in bf16, whose attention must be cuDNN's, about the same.
families_learn_as_on_the_cpu() {
  local name
  for name in learns_qwen3 learns_gemma3 learns_window; do
    train $name "$name.cpu.jsonl" --set run.device=cpu || return 1
    train $name "$name.gpu.jsonl" "${kOnGpu[@]}" || return 1
    train_with_cudnn $name "$name.bf16.jsonl" "${kOnGpu[@]}" --set bf16.enabled=true || return 1
  done
  python3 <(echo "$kReadLog"; cat <<'PYTHON'
far = 0
for name in ("learns_qwen3", "learns_gemma3", "learns_window"):
    expected, fp32, bf16 = (read(f"{name}.{kind}")[1] for kind in ("cpu", "gpu", "bf16"))
    apart = [max(abs(a - b) / b for a, b in zip(losses, expected, strict=True)) for losses in (fp32, bf16)]
    print(f"{name}: losses {expected[0]:.4f} to {expected[-1]:.4f}, fp32 at most {apart[0]:.1e} apart, bf16 {apart[1]:.1e}")
    far |= apart[0] > 1e-5 or apart[1] > 1e-2
sys.exit(far)
PYTHON
  ) "$results"
}

# A step of long sequences whose layers have a window, beside one without.
a_window_saves_time() {
  whole_steps long full || return 1
  whole_steps long window --set model.window=1024 || return 1
  python3 <(echo "$kReadLog"; cat <<'PYTHON'
seconds = [read(name)[2] for name in ("window", "full")]
print(f"16384 tokens, window 1024: {1e3 * seconds[0]:.1f} ms a step, {1e3 * seconds[1]:.1f} without")
PYTHON
  ) "$results"
}

# Four ranks, threads that share the first GPU; the first stage that ran says what all must give.
stage_gives_the_same_bits() {  # stage
  local hash first
  train small "stage$1.jsonl" "${kOnGpu[@]}" --local-ranks 4 --set zero_optimization.stage="$1" || return 1
  hash=$(tail -n 1 "$results/stage$1.jsonl" | grep -o '"state_hash": *"[0-9a-f]*"')
  [ -n "$hash" ] || { echo "stage $1: no state hash in its log"; return 1; }
  [ -f "$work/stage_hash" ] || echo "$hash" >"$work/stage_hash"
  first=$(cat "$work/stage_hash")
  [ "$hash" = "$first" ] || { echo "stage $1 ends with $hash, the first stage that ran with $first"; return 1; }
  echo "4 ranks as threads: $hash"
}

memory_is_planned() {
  train small plan.jsonl "${kOnGpu[@]}" --local-ranks 2 --set zero_optimization.stage=3 | tee "$work/plan.out"
  grep "as planned, to the byte" "$work/plan.out"
}

# Two ranks at stage 3 in fp16, cut behind step 5 and resumed, with moments in fp32 and in 8 bits.
a_resumed_run_is_the_uncut_one() {
  local moments
  for moments in fp32 8bit; do
    local keys=(--local-ranks 2 --set zero_optimization.stage=3 fp16.enabled=true bf16.enabled=false
      optimizer.params.moments=$moments) saves=(run.checkpoint.folder="$work/saved_$moments")
    train small "uncut_$moments.jsonl" "${kOnGpu[@]}" "${keys[@]}" &&
      train small "cut_$moments.jsonl" "${kOnGpu[@]}" "${keys[@]}" "${saves[@]}" run.steps=5 &&
      train small "cut_$moments.jsonl" "${kOnGpu[@]}" "${keys[@]}" "${saves[@]}" | tee "$work/resumed.out" || return 1
    grep 'resumed from' "$work/resumed.out" || return 1
    python3 - "$results/uncut_$moments.jsonl" "$results/cut_$moments.jsonl" <<'PYTHON' || return 1
import json, sys
uncut, cut = (json.loads(open(name).readlines()[-1])["state_hash"] for name in sys.argv[1:])
if uncut != cut:
    sys.exit(f"{sys.argv[2]} ends with state {cut}, the uncut run with {uncut}")
PYTHON
  done
  grep 'checkpoints go to' "$work/resumed.out"
}

# ---- inference ----

# Models that answer, beside the CPU's; then tokens/s of GPT-2 124M beside the memory's rate and that of products.
models_answer() {
  contract_tests "$bin/gpu_tests" --gtest_filter='*GpuInference*' || return 1
  "$bin/zero_bench" inference --inference-device cuda --inference-weights bf16 int8 q4 \
    --inference-rounds 3 | tee "$work/inference.out" || return 1
  answer_rates "$work/inference.out"
}

# The figures of bf16 in what `zero_bench inference` prints, whatever formats stand beside.
answer_rates() {  # file
  awk '/gpt2-124m on a GPU, a token of/ && / bf16 / { figures = figures $(NF - 4) " of " $(NF - 1) " tokens/s; "; ++found }
    END { print "1 and 16 sequences in bf16: " figures; exit found != 2 }' "$1"
}

# ---- compute-sanitizer ----

# Tests of a program that kSmall chooses; none is an error.
small_tests() {  # program
  local count
  count=$("$1" --gtest_list_tests --gtest_filter="$kSmall" | grep -c '^  ')
  if ((count == 0)); then
    echo "gpu.sh: no test of $1 matches $kSmall"
    return 1
  fi
  echo "$count small tests"
}

sanitizer() { command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null; }

# Whether what racecheck reported is of the vendors' kernels alone: theirs wait for copy engines by means that the tool
# does not follow.
only_vendors_race() {  # output
  grep -q '^========= .*Race reported between' "$1" && grep -qF '[  PASSED  ]' "$1" &&
    ! grep -E '^=========.* access at .*zero::' "$1" &&
    ! grep -E '^========= ' "$1" | grep -vqE ' access at |^=========[ ]*$|COMPUTE-SANITIZER|RACECHECK SUMMARY|Target application returned'
}

# A check that its seconds do not suffice for is not made: what it saw until then was right.
sanitize() {  # tool, program, seconds
  local program
  program=$(sanitizer) || { echo "compute-sanitizer is not on this host; CUDA's toolkit brings it"; return "$kNotMade"; }
  small_tests "$2" || return 1
  timeout -k 5 "$3" "$program" --tool "$1" --error-exitcode 9 "$2" --gtest_filter="$kSmall" 2>&1 |
    tee "$work/sanitizer.out"
  local status=$? passed
  if grep -i 'device not supported' "$work/sanitizer.out"; then return "$kNotMade"; fi
  passed=$(grep -c '^\[       OK \]' "$work/sanitizer.out")
  if ((status == 124 || status == 137)); then
    if grep -E '^========= (Invalid|Error|Race|Program hit)' "$work/sanitizer.out"; then return 1; fi
    echo "$passed tests passed, without a finding, before the $3 s were over"
    return "$kNotMade"
  fi
  [ $status = 0 ] || only_vendors_race "$work/sanitizer.out" || return 1
  echo "$passed tests of our own kernels"
}
