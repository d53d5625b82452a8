#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that the simulator predicts beside measured ones, on a machine of two cores as one host and as two.

  bench/predict_here.py FOLDER                             as root, for the two hosts (bench/two_hosts.sh): an hour
  bench/predict_here.py FOLDER --rates 1gbit               with a link of that rate alone; default: 2gbit,1gbit,400mbit
  bench/predict_here.py FOLDER --rates none                one host alone

The simulator is given what runs of at most two ranks show, none of which is a row of the table:
- product rate and memory bandwidth (zero_bench limits), bandwidths and the latency between hosts (zero_bench
  collectives), between hosts with as many bytes as a block of the model has: what a transfer loses at its begin and
  end counts the more, the smaller it is;
- the rates of each model's operations, from runs with run.profile: one rank, two at stage 0, two tensor ranks;
- for each model, the time in which a thread that communicates hands over to one that computes: the latency at which two
  tensor ranks take as long as they did;
- for each model, the share of a core that a thread takes which waits for the network, and the bytes/s that a rank's
  transfer reaches while a thread on the same core computes: those at which two ranks on two hosts, joined by the first
  of the links, with half the batch of the rows, compute as long and take as long in all as they did.
What disturbs a machine adds to a step, and may last for minutes: so all that is measured, for calibration and for rows
alike, is measured once in each of some rounds, and of all steps of a point the lower quartile counts; a profile, which
has the sum of a run's steps, is scaled to it. What was measured lies in FOLDER; started again, the script goes on, and
simulates anew. Nothing else may run: every figure is a time. Ends with 1 if the mean error is above 5 % or the largest
above 12 %.
"""
import argparse
import json
import pathlib
import subprocess
import sys
from functools import partial

HERE = pathlib.Path(__file__).resolve().parent
LARGE = 64 << 20  # bytes of a collective that shows bandwidth within a host: larger than caches
DEVICES = 8  # ranks that a host, or two hosts together, take at most
MODELS = {  # flags of zero_scale
    "narrow": ["--model", "family=gpt2,layers=8,width=256,heads=4,vocabulary=4096", "--sequence", "128",
               "--batch", "16", "--micro", "2"],
    "wide": ["--model", "family=llama,layers=4,width=512,heads=8,vocabulary=8192,context=512,intermediate=1408",
             "--sequence", "128", "--batch", "8", "--micro", "1"],
}
BLOCK = {"narrow": 12 * 256 * 256 * 4, "wide": (4 * 512 * 512 + 3 * 512 * 1408) * 4}  # bytes of its matrices
CALIBRATING = {
    "profile-one": ["--worlds", "1"],
    "profile-two": ["--worlds", "2", "--stages", "0", "--no-baseline"],
    "profile-tensor": ["--worlds", "2", "--stages", "0", "--meshes", "tensor=2", "--no-baseline"],
}
PROFILED = ["--set", "run.profile=true"]
ALONE = {"alone": ["--worlds", "1"]}
ONE_HOST = {
    "stages": ["--worlds", "2,4,8", "--stages", "0,1,2,3", "--no-baseline"],
    "tensor": ["--worlds", "4", "--stages", "0,3", "--meshes", "tensor=2", "--no-baseline"],
    "recompute": ["--worlds", "4", "--stages", "0,3", "--no-baseline",
                  "--set", "activation_checkpointing.recompute=full"],
}
TWO_HOSTS = {
    "pair": ["--worlds", "2", "--stages", "0,1,2,3", "--hosts", "host1:1,host2:1", "--no-baseline"],
    "crowd": ["--worlds", "8", "--stages", "0,1,2,3", "--hosts", "host1:4,host2:4", "--no-baseline"],
    "tensor": ["--worlds", "4", "--stages", "0,3", "--meshes", "tensor=2", "--hosts", "host1:2,host2:2",
               "--no-baseline"],
}
# Words for mpirun between the two hosts.
BETWEEN = [f"--launcher-flag={word}" for word in (
    "--bind-to", "none", "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include", "eth0",
    "--mca", "oob_tcp_if_include", "eth0", "--mca", "pml", "ob1")]
BOUNDS = {"mean": 0.05, "worst": 0.12}


def run(words):
    """Runs a command; shows its output only if it fails."""
    words = [str(word) for word in words]
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout[-3000:]}")


def seconds_of(row):
    """Of one call: rows of collectives have the bytes that a rank sends over its time."""
    unit = {"MB/s": 1e6, "GB/s": 1e9}[row["unit"]]
    sent = row["bytes"] * (row["ranks"] - 1) / row["ranks"]
    return sent / (row["value"] * unit)


def rate(bytes_per_second):
    return f"{bytes_per_second / 1e6:.6g}MB/s"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")
    return path


def quiet_step(runs):
    """The step of a point's runs that a quarter of them do not exceed, and the profile of its run; null: none was asked
    for."""
    steps, first = [], 2  # the first ones warm up
    for folder in runs:
        lines = [json.loads(line) for line in (folder / "run.log").read_text().splitlines()]
        profiles = [line["profile"] for line in lines if "profile" in line]
        steps += [(line, profiles[-1] if profiles else None) for line in lines if "step_seconds" in line][first:]
    return sorted(steps, key=lambda each: each[0]["step_seconds"])[len(steps) // 4]


def step(figures):
    return figures["step_seconds"]


def computing(figures):
    """What is no wait for communication, a core's work for the network included."""
    return figures["step_seconds"] - figures["exposed_communication_seconds"]


class Place:
    """This machine as one host, or as two joined by a link of `rate`."""

    def __init__(self, arguments, rate):
        self.build = pathlib.Path(arguments.build).resolve() / "bin"
        self.rate = rate
        self.hosts = 1 if rate is None else 2
        self.folder = pathlib.Path(arguments.folder).resolve() / ("one-host" if rate is None else rate)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.times = ["--steps", str(arguments.steps), "--warmup", "2"]
        self.rounds = arguments.rounds
        self.models = arguments.models.split(",")
        self.is_first_link = rate == arguments.rates.split(",")[0]

    def between(self, *flags):
        """The command that runs another one here."""
        return [] if self.rate is None else [HERE / "two_hosts.sh", *flags, self.rate]

    def collectives(self, large):
        """Of two ranks, one of each host: seconds of a gather of 64 bytes, and of a reduce-scatter of `large`: LARGE
        on one host, BLOCK of a model on two."""
        rows = self.folder / "collectives.json"
        if not rows.exists():
            start = self.between() or ["mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "none"]
            run([*start, self.build / "zero_bench", "collectives", "--threads", "1", "--json", rows,
                 "--bytes", "64", *map(str, BLOCK.values() if self.hosts == 2 else [LARGE])])
        found = {(row["name"], row["dtype"], row["bytes"]): row for row in json.loads(rows.read_text())}
        return (seconds_of(found["all_gather", "bf16", 64]), seconds_of(found["reduce_scatter", "fp32", large]))

    def limits(self):
        """FLOP/s and bytes/s of a core."""
        rows = self.folder / "limits.json"
        if not rows.exists():
            run([self.build / "zero_bench", "limits", "--threads", "1", "--json", rows])
        rates = {row["name"]: row["value"] * 1e9 for row in json.loads(rows.read_text()) if row["dtype"] == "fp32"}
        return rates["product rate"], rates["memory triad"]

    def measure(self, runs):
        """Runs all points that are measured here until each has so many runs."""
        profiled = {name: [*flags, *PROFILED] for name, flags in CALIBRATING.items()}
        sweeps = TWO_HOSTS if self.hosts == 2 else profiled | ALONE | ONE_HOST
        for model in self.models:
            for name, flags in sweeps.items():
                self.scale(self.folder / f"{model}-{name}", [*MODELS[model], *flags, "--repeats", str(runs)])
            if self.is_first_link:
                self.scale(self.folder / f"core-{model}", [*self.of_network(model), "--repeats", str(runs)])

    def profiled(self, model, name):
        """Seconds of a quiet step of runs that calibrate, and a profile of it."""
        folders = (self.folder / f"{model}-{name}" / "runs").iterdir()
        step, profile = quiet_step(each for each in folders if each.name != "limits")
        disturbed = profile["seconds"] / profile["steps"]
        for work in profile["work"]:
            work["seconds"] *= step["step_seconds"] / disturbed
        return step["step_seconds"], profile

    def operations(self, model, ranks):
        """A file of the rates of a model's operations, whole, and cut over two tensor ranks."""
        names = {1: ["profile-one"], 2: ["profile-two", "profile-tensor"]}[ranks]
        work = [each for name in names for each in self.profiled(model, name)[1]["work"]]
        return write(self.folder / f"operations-{model}-{ranks}.json", {"work": work})

    def matched(self, name, flags, into, limits, seconds, measured):
        """The value between `limits` with which, into(value) being the cluster, seconds(figures) of a point are
        simulated to be as many as measured. They grow with the value."""
        low, high = limits
        for _ in range(12):
            middle = (low + high) / 2
            path = write(self.folder / f"{name}.json", into(middle))
            row = self.scale(self.folder / name, [*flags, "--repeats", "0", "--simulate", path])[0]
            low, high = (middle, high) if seconds(row["predicted"]) < measured else (low, middle)
        return middle

    def handover(self, model, cluster):
        """Seconds of latency with which two tensor ranks are simulated to take as long as they took."""
        measured, _ = self.profiled(model, "profile-tensor")
        flags = [*MODELS[model], *CALIBRATING["profile-tensor"]]
        return self.matched(f"handover-{model}", flags, cluster, (0, 1e-3), step, measured)

    def of_network(self, model):
        """Flags of two ranks that have half the batch of the compared rows."""
        flags = [*MODELS[model], "--worlds", "2", "--stages", "2", "--hosts", "host1:1,host2:1", "--no-baseline"]
        at = flags.index("--batch") + 1
        return [*flags[:at], str(int(flags[at]) // 2), *flags[at + 1:]]

    def network(self, model, cluster):
        """Of ranks' cores and the network: the share of a core that a waiting thread takes, and the bytes/s that a
        transfer reaches beside compute; with them, two ranks that have half the batch of the compared rows are
        simulated to compute as long, and to take as long in all, as they did. cluster(both) is the cluster."""
        flags = self.of_network(model)
        measured = quiet_step((self.folder / f"core-{model}").glob("runs/strong-stage2-world2.*"))[0]
        polling, lost, link = 0, 0, self.link(model)
        for _ in range(3):  # each with the other as it was found
            polling = self.matched(f"core-time-{model}", flags, lambda value: cluster((value, link * (1 - lost))),
                                   (0, 0.95), computing, computing(measured))
            lost = self.matched(f"core-time-{model}", flags, lambda value: cluster((polling, link * (1 - value))),
                                (0, 0.95), step, step(measured))
        return polling, link * (1 - lost)

    def link(self, model):
        """Bytes/s between the two hosts, of collectives of a block of the model."""
        return BLOCK[model] / 2 / self.collectives(BLOCK[model])[1]

    def scale(self, folder, flags):
        words = [self.build / "zero_scale", "--report", folder, "--scaling", "strong", "--dtype", "fp32", *self.times,
                 "--set", "run.threads=1", *flags]
        if self.rate is not None:
            words += ["--launcher", "mpirun", *BETWEEN]
        run([*self.between("--ranks", "4", "--launcher", "none"), *words])
        return json.loads((folder / "report.json").read_text())["rows"]

    def rows(self, model, sweeps, cluster):
        path = write(self.folder / f"cluster-{model}-{'-'.join(sweeps)}.json", cluster)
        for name, flags in sweeps.items():
            folder = self.folder / f"{model}-{name}"
            for row in self.scale(folder, [*MODELS[model], *flags, "--repeats", str(self.rounds), "--simulate", path]):
                if row.get("failure"):
                    sys.exit(f"{folder}: {row['point']}: {row['failure']}")
                row["measured"], _ = quiet_step(folder.glob(f"runs/{row['point']}.*"))
                yield [self.rate or "one host", model, name], row


def cluster_of(here, place, model, ranks, latency, devices=DEVICES, network=None):
    """What the simulator is told of a place where `ranks` ranks (1 or 2) compute at once. `network`: as
    Place.network() finds it."""
    product, memory = here.limits()
    _, most = here.collectives(LARGE)
    file = {"hosts": place.hosts, "devices": devices, "kind": "cpu", "memory": "4GB",
            "cores": 2 // place.hosts, "compute_fp32": f"{product / 1e9:.6g}GFLOP/s",
            "memory_bandwidth": rate(memory), "operations": str(here.operations(model, ranks)),
            "links": {"within_host": {"bandwidth": rate(LARGE / most), "latency": f"{latency * 1e6:.3f}us"}}}
    if place.hosts == 2:
        least, _ = place.collectives(BLOCK[model])
        link = rate(place.link(model))
        file["links"]["between_hosts"] = {"latency": f"{least * 1e6:.3f}us", "bandwidth": link}
        file["links"]["of_host"] = link
        if network is not None:
            polling, limit = network
            file["shares"] = {"polling": polling}
            file["links"]["beside_compute"] = rate(limit)
    return file


def print_groups(errors):
    """The errors of each place's sweeps; signed ones tell whether predictions are too fast."""
    print("\n| place | sweep | rows | mean error | largest | mean with signs |\n|---|---|---|---|---|---|")
    for group in dict.fromkeys((labels[0], labels[2]) for _, labels in errors):
        found = [error for error, labels in errors if (labels[0], labels[2]) == group]
        cells = [*group, str(len(found)), f"{sum(map(abs, found)) / len(found) * 100:.1f} %",
                 f"{max(found, key=abs) * 100:+.1f} %", f"{sum(found) / len(found) * 100:+.1f} %"]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="for what is measured")
    parser.add_argument("--build", default=HERE.parent / "build", help="folder of the build")
    parser.add_argument("--rates", default="2gbit,1gbit,400mbit", help="of the link between two hosts; none: one host")
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--steps", type=int, default=8, help="that a run measures")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each point")
    arguments = parser.parse_args()
    here = Place(arguments, None)
    rates = [] if arguments.rates == "none" else arguments.rates.split(",")
    models = arguments.models.split(",")
    places = [here, *(Place(arguments, rate) for rate in rates)]
    for runs in range(1, arguments.rounds + 1):
        for place in places:
            place.measure(runs)
    latency, network = {}, {}
    for model in models:
        latency[model] = here.handover(model, partial(cluster_of, here, here, model, 2))
        print(f"{model}: handing over between threads: {latency[model] * 1e6:.0f} us")
        for first in places[1:2]:
            network[model] = first.network(model, partial(cluster_of, here, first, model, 2, latency[model], 1))
            polling, limit = network[model]
            print(f"{model}: a thread that waits for the network takes {polling * 100:.0f} % of its core; beside "
                  f"compute a transfer reaches {limit / 1e6:.0f} MB/s")
    errors = []
    print("\n| place | model | sweep | point | measured ms | predicted ms | error | exposed ms | predicted |")
    print("|---|---|---|---|---|---|---|---|---|")
    for place in places:
        for model in models:
            rows = []
            if place is here:
                rows += place.rows(model, ALONE, cluster_of(here, place, model, 1, latency[model]))
                rows += place.rows(model, ONE_HOST, cluster_of(here, place, model, 2, latency[model]))
            for name, flags in TWO_HOSTS.items() if place.hosts == 2 else ():
                devices = int(flags[flags.index("--worlds") + 1]) // 2
                cluster = cluster_of(here, place, model, 2, latency[model], devices, network[model])
                rows += place.rows(model, {name: flags}, cluster)
            for labels, row in rows:
                measured, predicted = row["measured"], row["predicted"]
                error = predicted["step_seconds"] / measured["step_seconds"] - 1
                errors.append((error, [*labels, row["point"]]))
                cells = [*labels, row["point"], f"{measured['step_seconds'] * 1e3:.0f}",
                         f"{predicted['step_seconds'] * 1e3:.0f}", f"{error * 100:+.1f} %",
                         f"{measured['exposed_communication_seconds'] * 1e3:.0f}",
                         f"{predicted['exposed_communication_seconds'] * 1e3:.0f}"]
                print("| " + " | ".join(cells) + " |", flush=True)
    print_groups(errors)
    mean = sum(abs(error) for error, _ in errors) / len(errors)
    worst, where = max((abs(error), labels) for error, labels in errors)
    print(f"\n{len(errors)} rows, none of them fitted: mean error {mean * 100:.1f} %, "
          f"largest {worst * 100:.1f} % ({', '.join(where)})")
    return int(mean > BOUNDS["mean"] or worst > BOUNDS["worst"])


if __name__ == "__main__":
    sys.exit(main())
