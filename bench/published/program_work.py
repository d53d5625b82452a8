# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a row's program take, as rates of this engine's operations: a cluster file's `operations`.

programs.json has the measurements of kernels and the counts of bytes, with their sources; no step is among them.
Products have a rate for each kind of product, the mean over a model's shapes; attention one for its sequence and heads.
All other work of a layer is put on its two norms, so that they take as long as all of the program's kernels.
"""

import math
import statistics

import check

# Of a link's rate: within hosts by ml-engineering (devices.json, "measured"), PCIe assumed.
LINKS = {"h100": 0.82, "a100": 0.78, "rtx-4090": 0.70}
NETWORK = 0.77  # of the rate between hosts: devices.json, "measured"
MEMORY = 0.88  # of the memory's rate, what copies reach
FREE = 1e12    # GB/s of operations whose work is on the norms
NO_HEAD = 1024  # tokens of a stage's model without head: under a hundredth of a layer
SEQUENCES = [512, 1024, 2048, 4096, 8192, 16384]
FREE_OPERATIONS = ("gelu_forward gelu_backward swiglu_forward swiglu_backward rotary column_sums add").split()


def of_device(table, device):
    """The entry of the longest name that a device's name begins with."""
    return table[max((name for name in table if device.startswith(name)), key=len)]


def program_of(row, files):
    name = files["publications"][row["publication"]]["kernels"]
    if isinstance(name, dict):
        name = name[row.get("program", "")]
    return files["programs"][name]


def gradients_of(row, files):
    """Of gradients between ranks."""
    return row.get("gradients", files["publications"][row["publication"]].get("gradients", row["dtype"]))


def model_of(row, files):
    """Of a row, or of one of its stages, which has its own."""
    return files["models"][row["model"]] if isinstance(row["model"], str) else row["model"]


def stages_of(row, files):
    """Rows that stand for stages of a row's pipeline: the one with the head, and any other; else the row itself.

    The ranks of a stage run its share of the layers. The last stage has the head as well, unless the program gave head
    and token table the places of layers. The others are as slow as the slowest device of all stages. Interleaved, as
    many micro-batches as there are stages pass a chunk before the next one does: where gradients travel beside
    backward, they do so as if these were one micro-batch."""
    stages = row["mesh"].get("pipeline", 1)
    if stages == 1:
        return [row]
    model = files["models"][row["model"]]
    balanced = program_of(row, files).get("pipeline", {}).get("balanced", False)
    grouped = row.get("chunks", 1) > 1 and files["publications"][row["publication"]].get("overlap", True)
    head = {**row, "hosts": row["hosts"] // stages, "group": stages if grouped else 1,
            "mesh": {axis: ranks for axis, ranks in row["mesh"].items() if axis != "pipeline"},
            "model": {**model, "layers": (model["layers"] + 2 * balanced) // stages}}
    others = {**head, "stages": stages, "model": {**head["model"], "vocabulary": NO_HEAD}}
    return [others] if balanced else [head, others]


def bubble(row):
    """Of what a stage computes, how long it waits for others: of interleaved 1F1B (Narayanan et al. 2021)."""
    stages = row["mesh"].get("pipeline", 1)
    return (stages - 1) / (row["accumulation"] * row.get("chunks", 1)) if stages > 1 else 0


def tensor_stream(row, files):
    """The tensor ranks of a program that has a stream for their collectives; else 1.

    Here these would wait behind data ranks' collectives: such a row is simulated as the part of one tensor rank, whose
    collectives are work of its layers."""
    return row["mesh"].get("tensor", 1) if "tensor" in program_of(row, files) else 1


def part_of(model, ranks):
    """A model of llama's family whose products, heads and parameters are those of one of so many tensor ranks."""
    inner = model.get("intermediate") or 8 * model["width"] / 3  # two products of four widths: three of this
    return {**{key: model[key] for key in ("layers", "width", "context")}, "family": "llama",
            "heads": model["heads"] // ranks, "kv_heads": max(model.get("kv_heads", model["heads"]) // ranks, 1),
            "head_width": model["width"] // model["heads"], "intermediate": round(inner / ranks),
            "vocabulary": -(-model["vocabulary"] // ranks)}


class Sizes:
    """Of a rank's part of a layer, in elements of a token."""

    def __init__(self, row, model, program):
        self.tensor = row["mesh"].get("tensor", 1)
        self.tokens = row["micro_batch"] * row["sequence"]
        self.width, self.layers = model["width"], model["layers"]
        self.head = model["width"] // model["heads"]
        self.gpt2 = model["family"] == "gpt2"
        self.queries = model["width"] // self.tensor
        self.keys = max(model.get("kv_heads", model["heads"]) // self.tensor, 1) * self.head
        self.inner = (4 * model["width"] if self.gpt2 else model["intermediate"]) // self.tensor
        self.vocabulary = model["vocabulary"] // self.tensor
        self.norm_share = 1 / self.tensor if row["mesh"].get("sequence_parallel") or "tensor" in program else 1
        self.parameters = check.block_parameters(model) / self.tensor

    def products(self, split):
        """(in, out) of a layer's products; `split`: each weight is a product of its own."""
        qkv = [self.queries, self.keys, self.keys]
        up = [self.inner] if self.gpt2 else [self.inner, self.inner]
        outs = [*qkv, *up] if split else [sum(qkv), sum(up)]
        return [*((self.width, out) for out in outs), (self.queries, self.width), (self.inner, self.width)]


def product_seconds(kernels, tiles, rows, columns, depth):
    """Of a product, by whole rounds of tiles over the device and by its depth."""
    def flat(rows, columns, depth):
        shares = []
        for height, width, share in tiles:
            rounds = math.ceil(rows / height) * math.ceil(columns / width) / kernels["multiprocessors"]
            shares.append(share * rounds / math.ceil(rounds))
        return max(shares) * depth / (depth + kernels["overhead_depth"])

    best = kernels["square_tflops"] * 1e12 / flat(8192, 8192, 8192)
    return 2 * rows * columns * depth / (best * flat(rows, columns, depth))


def products_of(row, files, program):
    """What the products of a row's device reach, in the program's version of cuBLAS if that was measured."""
    table, device = files["products"], files["clusters"][row["cluster"]]["device"]
    versions = [name for name in table if name.endswith(f" cublas {program.get('cublas')}")]
    return next((table[name] for name in versions if device.startswith(name.split()[0])), of_device(table, device))


def product_rates(row, sizes, files, program):
    """FLOP/s of each kind of product, over a layer's and, once, the head's."""
    kernels = products_of(row, files, program)
    tiles = kernels.get("tiles", files["tiles"]["shapes"])
    block, head = sizes.products(program.get("split", False)), (sizes.width, sizes.vocabulary)

    def rate(counted, computed, shape):
        """`counted` here, in the seconds of those that the program computes."""
        flop = sum(2 * sizes.tokens * into * out for into, out in counted)
        return flop / sum(product_seconds(kernels, tiles, *shape(*each)) for each in computed)

    once = [*(block * sizes.layers), head]
    here = program_has = once
    if "again" in program and isinstance(row["recompute"], dict):  # here the first five
        here = [*(block[:5] * sizes.layers), *once]
        program_has = [*([block[i] for i in program["again"]] * sizes.layers), *once]
    elif row["recompute"] == "full":  # here, and unless it repeats whole blocks there too, without their last product
        here = [*(block[:-1] * sizes.layers), *once]
        program_has = [*(block * sizes.layers), *once] if program.get("recompute") == "whole" else here
    return {"linear_forward": rate(here, program_has, lambda into, out: (sizes.tokens, out, into)),
            "linear_backward_input": rate(once, once, lambda into, out: (sizes.tokens, into, out)),
            "linear_backward_weight": rate(once, once, lambda into, out: (into, out, sizes.tokens))}


def attention_rates(row, sizes, files, name):
    """FLOP/s forward and backward, between measured sequences over their logarithm."""
    device = files["clusters"][row["cluster"]]["device"]
    heads = of_device(files["attention"][name], device)
    rates = heads["64" if sizes.head <= 64 and "64" in heads else "128"]
    at = min(max(math.log2(row["sequence"] / SEQUENCES[0]), 0), len(SEQUENCES) - 1)
    low = min(int(at), len(SEQUENCES) - 2)

    def rate(way):
        table = rates.get("both") or rates[way]
        return (table[low] + (at - low) * (table[low + 1] - table[low])) * 1e12

    return {f"attention_{way}": rate(way) for way in ("forward", "backward")}


def scores_rate(row, sizes, files, scores):
    """FLOP/s of attention that keeps all scores, for all pairs of positions.

    The simulation counts 2 products forward and 5 backward, over the pairs that a causal mask leaves: half. `scores`:
    bytes of a score."""
    cluster = files["clusters"][row["cluster"]]
    device = files["devices"][cluster["device"]]
    products = of_device(files["products"], cluster["device"])["square_tflops"] * 1e12
    memory = device["memory_gb_s"] * 1e9 * MEMORY
    forward = 4 * sizes.head / products + scores["forward"] / memory
    backward = 8 * sizes.head / products + scores["backward"] / memory
    return {"attention_forward": 2 * sizes.head / forward, "attention_backward": 5 * sizes.head / backward}


def not_hidden(row, files):
    """Of what a product moves to add to a gradient, the part that costs time.

    What a product loses at its ends, by the depth at which it runs at half the rate, over the time of the 2 bytes that
    it writes there."""
    name = files["clusters"][row["cluster"]]["device"]
    kernels = of_device(files["products"], name)
    lost = 2 * kernels["overhead_depth"] / (kernels["square_tflops"] * 1e12)
    return min(1, lost * files["devices"][name]["memory_gb_s"] * 1e9 * MEMORY / 2)


def added_bytes(row, sizes, files, program, gradients):
    """Bytes for which a layer's products, with the layer's part of the head's, are longer as they add to gradients."""
    if "adds" not in program:
        return 0
    parameters = sizes.parameters + sizes.vocabulary * sizes.width / sizes.layers
    adding = 1 - 1 / row["accumulation"] if program.get("first") == "overwrites" else 1
    return parameters * program["adds"][1 if gradients == "fp32" else 0] * adding * not_hidden(row, files)


def layer_bytes(row, sizes, files, program, gradients):
    """Bytes that a layer's kernels move beside products and attention, forward and backward."""
    tokens, elements = sizes.tokens, {
        "norm": 2 * sizes.width * sizes.norm_share, "residual": sizes.width * sizes.norm_share,
        "bias": sizes.queries + 2 * sizes.keys + sizes.inner + 2 * sizes.width if sizes.gpt2 else 0,
        "heads": sizes.queries + 2 * sizes.keys, "rotary": sizes.queries + sizes.keys, "activation": sizes.inner}
    forward, backward = (tokens * sum(count * program.get(kind, [0, 0])[way] for kind, count in elements.items())
                         for way in (0, 1))
    gather = sizes.parameters * program.get("gather", 0)
    reduce = sizes.parameters * program.get("reduce", [0, 0])[1 if gradients == "fp32" else 0]
    again = gather * program.get("gathers_again", 1) if row["stage"] == 3 else 0
    added = added_bytes(row, sizes, files, program, gradients)
    return forward + (gather if row["stage"] >= 2 else 0), backward + again + reduce + added


def tensor_seconds(row, sizes, files, program):
    """What a layer's collectives over tensor ranks hold up compute, if the program has a stream for them."""
    ranks, kinds = tensor_stream(row, files), ("forward", "backward", "apply")
    if ranks == 1:
        return dict.fromkeys(kinds, 0)
    cluster = files["clusters"][row["cluster"]]
    payload = sizes.tokens * sizes.width * 2 * (ranks - 1) / ranks
    one = (payload / (cluster["within_host_gb_s"] * 1e9 * of_device(LINKS, cluster["device"])) +
           (files["nccl"]["collective_us"] + (ranks - 1) * files["nccl"]["hop_us"]["nvlink"]) * 1e-6)
    exposed = 1 / ranks if program["tensor"]["exposed"] == "last chunk" else 1
    return {kind: program["tensor"][kind] * one * exposed for kind in kinds}


def pipeline_seconds(row, sizes, files, program):
    """What a layer waits, each way, for transfers between stages: of each chunk one.

    Each tensor rank sends its part of the rows, and those that receive gather them ("scatter/gather")."""
    if not program.get("pipeline", {}).get("exposed") or "chunks" not in row:
        return 0
    cluster, nccl, rows = files["clusters"][row["cluster"]], files["nccl"], 2 * sizes.tokens * sizes.width
    within = cluster["within_host_gb_s"] * 1e9 * of_device(LINKS, cluster["device"])
    others = sizes.tensor - 1
    sent = rows / sizes.tensor / (cluster["between_hosts_gb_s"] * 1e9 * NETWORK)
    gathered = rows * others / sizes.tensor / within
    latency = nccl["hop_us"]["network"] + others * nccl["hop_us"]["nvlink"] + 2 * nccl["collective_us"]
    return (sent + gathered + latency * 1e-6) * row["chunks"] / sizes.layers


def slowest(row, files):
    """Of a typical device's speed, what the slowest of a row's devices is expected to have."""
    world = row["hosts"] * row["devices"] * row.get("stages", 1)
    if world == 1:
        return 1.0
    extreme = statistics.NormalDist().inv_cdf((world - 0.375) / (world + 0.25))  # Blom's expected largest
    return 1 - files["slowest"]["sigma"] * extreme


def overlaps(row, files):
    """Whether collectives run beside products; DeepSpeed's of 2021 that do not are work of its layers."""
    return "host" in program_of(row, files) or files["publications"][row["publication"]].get("overlap", True)


def host_seconds(row, sizes, files, program, arithmetic):
    """What a layer's device waits, each way, for gathers, and for a host that handles each data rank's slice by itself.

    Weights are gathered, one by one, while the device is idle. Slices of reductions are cut beside backward's products
    and attention, and hold the device up where they take longer. What each device keeps of a layer (norms, biases) is
    gathered after the update."""
    if "host" not in program:
        return {}
    host, ranks = program["host"], check.data_ranks(row)
    cluster, nccl = files["clusters"][row["cluster"]], files["nccl"]
    slice_us = {kind: views * host["view_us"] + host["copy_us"] for kind, views in host["views"].items()}
    latency = (nccl["collective_us"] + (ranks - row["hosts"]) * nccl["hop_us"]["nvlink"] +
               (row["hosts"] - 1) * nccl["hop_us"]["network"])
    whole = sizes.parameters * 2 * (ranks - 1) / ranks
    network = whole / row["devices"] / (cluster["between_hosts_gb_s"] * 1e9 * NETWORK) * 1e6
    gathered = host["gathers"] * (ranks * slice_us["gather"] + latency) + network
    backward = gathered
    beside = 2 * sizes.tokens * sizes.parameters * sum(
        1e6 / arithmetic[f"linear_backward_{of}"] for of in ("input", "weight"))
    beside += 5 * sizes.tokens * row["sequence"] * sizes.queries * 1e6 / arithmetic["attention_backward"]
    backward += max(0, host["reductions"] * ranks * slice_us["reduce"] - beside)
    for widths, count in host["kept"]:
        kept = widths * sizes.width
        backward += count * -(-kept // -(-kept // ranks)) * slice_us["kept"] / row["accumulation"]
    return {"forward": gathered * 1e-6, "again": gathered * 1e-6, "backward": backward * 1e-6}


def layer_seconds(row, sizes, files, program, arithmetic):
    """What a layer takes beside products and attention: forward, forward again if that is repeated, and backward."""
    memory = files["devices"][files["clusters"][row["cluster"]]["device"]]["memory_gb_s"] * 1e9 * MEMORY
    forward, backward = (bytes_ / memory for bytes_ in layer_bytes(row, sizes, files, program, gradients_of(row, files)))
    if "norm" not in program:  # fused as here: what units' copies add, and four operands of two norms
        own = 4 * 2 * 2 * sizes.tokens * sizes.width * sizes.norm_share / memory
        forward, backward = forward + own, backward + own
    tensor = tensor_seconds(row, sizes, files, program)
    stages = pipeline_seconds(row, sizes, files, program)
    host = host_seconds(row, sizes, files, program, arithmetic)
    return {"forward": forward + tensor["forward"] + host.get("forward", 0) + stages,
            "again": forward + tensor["apply"] + host.get("again", 0),
            "backward": backward + tensor["backward"] + host.get("backward", 0) + stages}


def norm_rates(row, sizes, files, program, arithmetic):
    """Bytes/s of this engine's norms at which they take as long as all of the program's kernels.

    A layer has two, and the model one more. A block that is computed again applies the first to its kept statistics,
    but computes those of the second again: forward runs 1.5 times for each layer."""
    memory = files["devices"][files["clusters"][row["cluster"]]["device"]]["memory_gb_s"] * 1e9 * MEMORY
    part = tensor_stream(row, files) > 1
    kind = "layer_norm" if sizes.gpt2 and not part else "rms_norm"
    whole = 2 * 2 * sizes.tokens * sizes.width  # an operand of two norms in half precision
    own, layers = whole * sizes.norm_share, sizes.layers
    operands = {"forward": 4, "backward": 4, "apply": 2}
    layer = layer_seconds(row, sizes, files, program, arithmetic)
    last = [bytes_ * own / 4 / memory for bytes_ in program.get("norm", [8, 8])]  # of the model's last norm
    forward = (layers * layer["forward"] + last[0]) / (layers + 0.5)
    backward = layers * layer["backward"] + last[1]
    if row["recompute"] == "full":
        again = max(2 * layer["again"] - forward, 0.01 * forward)
        backward += layers * (layer["again"] - (forward + again) / 2)
    else:
        again = own * operands["apply"] / memory if row["recompute"] == "none" else layer["again"]
    seconds = {"forward": forward, "backward": backward / (layers + 0.5), "apply": again}
    return {f"{kind}_{way}": operands[way] * (whole if part else own) / seconds[way] for way in operands}


def rates(row, files, factor=1.0):
    """Rates of operations, by name: FLOP/s of products and attention, times `factor`; bytes/s of all others."""
    cluster = files["clusters"][row["cluster"]]
    memory = files["devices"][cluster["device"]]["memory_gb_s"] * 1e9 * MEMORY
    program, gradients = program_of(row, files), gradients_of(row, files)
    sizes = Sizes(row, model_of(row, files), program)
    attention = program.get("attention", files["publications"][row["publication"]].get("attention"))
    arithmetic = product_rates(row, sizes, files, program)
    if attention == "scores":
        arithmetic.update(scores_rate(row, sizes, files, program["scores"]))
    else:
        arithmetic.update(attention_rates(row, sizes, files, attention))
    factor *= slowest(row, files)
    arithmetic = {name: rate * factor for name, rate in arithmetic.items()}
    bytes_of = norm_rates(row, sizes, files, program, arithmetic)
    if "norm" in program:
        bytes_of.update({name: FREE * 1e9 for name in FREE_OPERATIONS})
    if row.get("reduction") == "boundary":  # a program's products add, or its reductions
        bytes_of["tree_reduce"] = FREE * 1e9
    if "loss" in program:  # here 4 bytes of a logit; between tensor ranks 2 more
        whole = 4 if sizes.tensor in (1, tensor_stream(row, files)) else 6
        bytes_of.update({name: memory * whole / program["loss"]
                         for name in ("cross_entropy_backward", "softmax_part", "cross_entropy_gradient")})
    if "update" in program:  # here master weights, two moments and a gradient, and half a copy
        bytes_of["adamw"] = memory * (30 if gradients == "fp32" else 28) / program["update"]
    return arithmetic, bytes_of


def operations(row, files, factor=1.0):
    """The rows of a cluster file's `operations`."""
    arithmetic, memory = rates(row, files, factor)
    return [{"section": "ops", "name": name, "dtype": row["dtype"], "unit": unit, "value": rate / 1e9, "bytes": 1}
            for unit, table in (("GFLOP/s", arithmetic), ("GB/s", memory)) for name, rate in table.items()]


def beside_communication(row, files):
    """Of a device's speed, what the multiprocessors that NCCL leaves have.

    Of DeepSpeed's of 2021 only reductions run beside products, one of the three collectives of a weight here."""
    channels, device = files["channels"], files["clusters"][row["cluster"]]["device"]
    held = channels["one_host" if row["hosts"] == 1 else "several_hosts"]
    if "host" in program_of(row, files):
        held /= 3
    return 1 - held / of_device(files["products"], device)["multiprocessors"]
