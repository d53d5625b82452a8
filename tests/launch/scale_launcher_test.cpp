// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/plan/model_choice.h"
#include "launch/scale/launcher.h"
#include "launch/scale/scale_report.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scratch;
using Kind = Launcher::Kind;

const Command kProgram{"/bin/zero_train", "--config", "/r/ds.json"};

std::vector<std::string> lines_of(const Launcher& launcher, int world) {
  std::vector<std::string> lines;
  for (const Command& command : launcher.commands(world, kProgram)) {
    lines.push_back(shell_text(command));
  }
  return lines;
}

Launcher on_hosts(Kind kind, const char* hosts) {
  return {.kind = kind, .hosts = hosts_of_list(hosts, "--hosts"), .here = "head"};
}

TEST(ScaleHosts, AreReadFromAList) {
  const auto hosts = hosts_of_list("a:8,b-1.c:4", "--hosts");
  EXPECT_EQ(hosts_text(hosts), "a:8,b-1.c:4");
  EXPECT_EQ(ranks_of(hosts), 12);
  EXPECT_EQ(hosts_text(hosts_of_world(hosts, 8)), "a:8");
  EXPECT_EQ(hosts_text(hosts_of_world(hosts, 9)), "a:8,b-1.c:1");
  EXPECT_THAT(error_of([&] { hosts_of_world(hosts, 13); }),
              HasSubstr("--worlds: found 13, expected at most the 12 ranks of a:8,b-1.c:4"));
  for (const char* bad : {"", "a", "a:", "a:0", "a:x", "-a:1", "a:1,,b:2", "a;b:1", "a:1:2"}) {
    EXPECT_THAT(error_of([&] { hosts_of_list(bad, "--hosts"); }), HasSubstr("--hosts: found \""))
        << bad;
  }
  EXPECT_THAT(error_of([] { hosts_of_list("a:1,a:2", "--hosts"); }), HasSubstr("named twice"));
}

TEST(ScaleHosts, AreReadFromAFile) {
  const Scratch folder;
  const std::string path = folder.write("hosts",
                                        "# two machines\n\na slots=8 # first\n"
                                        "b:4\n  c slots=2 max_slots=9 \nd\tmax-slots=1 slots=3");
  EXPECT_EQ(hosts_text(hosts_of_file(path)), "a:8,b:4,c:2,d:3");
  for (const char* bad : {"a", "a slots=", "a slots", "a slots=0", "a cpus=3", "a slots=2 slots=3",
                          "a:2 slots=3", "a b"}) {
    const std::string file = folder.write("bad", std::string("x:1\n") + bad + "\n");
    EXPECT_THAT(error_of([&] { hosts_of_file(file); }), HasSubstr(file + ":2: found \"")) << bad;
  }
  EXPECT_THAT(error_of([&] { hosts_of_file(folder.write("none", "#\n")); }),
              HasSubstr("names no host"));
  EXPECT_THAT(error_of([] { hosts_of_file("/nowhere"); }), HasSubstr("--hostfile /nowhere"));
}

TEST(ScaleLauncher, LocalRanksAreThreads) {
  const Launcher launcher{.here = "head"};
  EXPECT_THAT(lines_of(launcher, 4),
              ElementsAre("/bin/zero_train --config /r/ds.json --local-ranks 4"));
  EXPECT_THAT(error_of([] { lines_of(on_hosts(Kind::local, "a:1,b:1"), 2); }),
              HasSubstr("--launcher local: ranks are threads of this host, head, found the hosts "
                        "a:1,b:1"));
}

TEST(ScaleLauncher, MpirunGetsHostsAgentAndVariables) {
  EXPECT_THAT(lines_of({.kind = Kind::mpirun}, 2),
              ElementsAre("mpirun -np 2 --bind-to none --oversubscribe /bin/zero_train --config "
                          "/r/ds.json"));
  Launcher launcher = on_hosts(Kind::mpirun, "a:2,b:2");
  launcher.agent = "/my/agent";
  launcher.as_root = true;
  launcher.flags = {"--mca", "btl_tcp_if_include", "eth0"};
  launcher.variables = {"NCCL_DEBUG=INFO"};
  EXPECT_THAT(lines_of(launcher, 3),
              ElementsAre("mpirun -np 3 --bind-to none --allow-run-as-root --host a:2,b:1 --mca "
                          "plm_rsh_agent /my/agent -x NCCL_DEBUG --mca btl_tcp_if_include eth0 "
                          "/bin/zero_train --config /r/ds.json"));
}

TEST(ScaleLauncher, SrunGetsNodesAndTasks) {
  EXPECT_THAT(lines_of(on_hosts(Kind::srun, "a:2,b:2,c:2"), 4),
              ElementsAre("srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1 "
                          "--nodelist=a,b /bin/zero_train --config /r/ds.json"));
  Launcher in_shell = on_hosts(Kind::srun, "a:2");
  in_shell.in_step = true;
  EXPECT_THAT(lines_of(in_shell, 2),
              ElementsAre("srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --kill-on-bad-exit=1 "
                          "--overlap --nodelist=a /bin/zero_train --config /r/ds.json"))
      << "else it waits for the shell's step to end";
  EXPECT_THAT(error_of([] { lines_of(on_hosts(Kind::srun, "a:2,b:2"), 3); }),
              HasSubstr("--launcher srun: starts as many ranks on every host, found a:2,b:1"));
}

TEST(ScaleLauncher, TorchrunIsStartedOnEveryHost) {
  EXPECT_THAT(lines_of({.kind = Kind::torchrun}, 2),
              ElementsAre("env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --nproc-per-node 2 "
                          "--standalone --no-python /bin/zero_train --config /r/ds.json"));
  Launcher launcher = on_hosts(Kind::torchrun, "head:2,b:2");
  launcher.variables = {"NCCL_DEBUG=WARN X"};
  const std::string before = "env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ";
  const std::string common = "torchrun --nproc-per-node 2 --nnodes 2 --node-rank ";
  const std::string end =
      " --master-addr head --master-port 29500 --no-python /bin/zero_train "
      "--config /r/ds.json";
  EXPECT_EQ(launcher.commands(4, kProgram).at(1),
            (Command{"ssh", "b", before + "'NCCL_DEBUG=WARN X' " + common + "1" + end}));
  EXPECT_EQ(lines_of(launcher, 4).at(0), before + common + "0" + end);
  launcher.agent = "ssh  -p 2222";
  launcher.torchrun = "/opt/conda/bin/torchrun";
  const Command there = launcher.commands(4, kProgram).at(1);
  EXPECT_EQ(Command(there.begin(), there.begin() + 4), (Command{"ssh", "-p", "2222", "b"}));
  EXPECT_THAT(there.at(4), HasSubstr("X' /opt/conda/bin/torchrun --nproc-per-node 2"));
}

TEST(ScaleLauncher, SettingsOfOtherLaunchersAreRefused) {
  const auto refusal = [](Launcher launcher) { return error_of([&] { launcher.check(); }); };
  EXPECT_EQ(refusal({.kind = Kind::local, .agent = "rsh"}),
            "--agent: --launcher local has no use for it: its ranks are threads of one process of "
            "this host; leave it out, or give another launcher");
  EXPECT_THAT(refusal({.kind = Kind::local, .flags = {"-v"}}), HasSubstr("--launcher-flag: "));
  EXPECT_THAT(refusal({.kind = Kind::local, .port = 1}), HasSubstr("--port: "));
  EXPECT_THAT(refusal({.kind = Kind::srun, .agent = "rsh"}), HasSubstr("Slurm itself starts"));
  EXPECT_THAT(refusal({.kind = Kind::srun, .port = 1}), HasSubstr("--port: --launcher srun"));
  EXPECT_THAT(refusal({.kind = Kind::mpirun, .port = 1}), HasSubstr("its ranks meet through MPI"));
  EXPECT_THAT(refusal({.kind = Kind::mpirun, .torchrun = "t"}), HasSubstr("--torchrun: "));
  for (const Launcher& launcher : std::vector<Launcher>{
           {.kind = Kind::mpirun, .agent = "rsh", .flags = {"-v"}},
           {.kind = Kind::srun, .flags = {"-v"}},
           {.kind = Kind::torchrun, .agent = "rsh", .torchrun = "t", .port = 1, .flags = {"-v"}}}) {
    EXPECT_EQ(refusal(launcher), "no error");
  }
}

TEST(ScaleLauncher, ASecretIsNotShownInCommands) {
  Launcher launcher = on_hosts(Kind::torchrun, "head:1,b:1");
  launcher.variables = {"ZERO_JOB_SECRET_FILE=/s", "ZERO_JOB_SECRET=0123456789abcdef"};
  const std::string error = error_of([&] { lines_of(launcher, 2); });
  EXPECT_THAT(error, HasSubstr("ZERO_JOB_SECRET would stand in the command for host b"));
  EXPECT_EQ(error.find("0123456789abcdef"), std::string::npos);
  launcher.variables.pop_back();
  EXPECT_THAT(lines_of(launcher, 2).at(1), HasSubstr("ZERO_JOB_SECRET_FILE=/s"));
}

TEST(ScaleLauncher, RanksThatNoMpiJoinsHaveASecretOnSeveralHosts) {
  const std::string secret = "env ZERO_JOB_SECRET_FILE=/r/.job_secret /bin/zero_train";
  for (const Kind kind : {Kind::srun, Kind::torchrun, Kind::mpirun}) {
    Launcher launcher = on_hosts(kind, "head:2,b:2");
    launcher.secret_file = "/r/.job_secret";
    EXPECT_EQ(launcher.needs_secret(), kind != Kind::mpirun);
    EXPECT_THAT(lines_of(launcher, 2), Each(Not(HasSubstr("secret"))));
    for (const std::string& line : lines_of(launcher, 4)) {
      EXPECT_EQ(line.find(secret) != std::string::npos, kind != Kind::mpirun) << line;
    }
  }
  EXPECT_FALSE(on_hosts(Kind::srun, "head:2").needs_secret());
}

Sweep tiny_sweep() {
  Sweep sweep{.worlds = {1, 2, 4}, .stages = {0, 3}, .model_text = "tiny", .batch = 4};
  sweep.model = model_of("family=gpt2,layers=1,width=32,heads=2,context=32,vocabulary=256");
  sweep.sequence = 16;
  return sweep;
}

std::vector<std::string> names_of(const std::vector<ScalePoint>& points) {
  std::vector<std::string> names;
  for (const ScalePoint& point : points) names.push_back(point.name());
  return names;
}

TEST(Sweep, StrongKeepsTheBatchAndWeakThatOfARank) {
  std::vector<std::string> left_out;
  Sweep sweep = tiny_sweep();
  sweep.stages = {3};
  const std::vector<ScalePoint> points = sweep.points(left_out);
  EXPECT_THAT(names_of(points),
              ElementsAre("one-process", "strong-stage3-world2", "strong-stage3-world4",
                          "weak-stage3-world2", "weak-stage3-world4"));
  EXPECT_TRUE(left_out.empty());
  std::vector<std::int64_t> batches;
  for (const ScalePoint& point : points) batches.push_back(sweep.batch_of(point));
  EXPECT_THAT(batches, ElementsAre(4, 4, 4, 8, 16));
  EXPECT_EQ(sweep.data_tokens(points.front()), 4 * 16 + 1);
  EXPECT_EQ(sweep.data_tokens(points.back()), 16 * 16 + 1);
  const auto file = sweep.configuration(points.back(), "t.bin", "run.log");
  EXPECT_EQ(file["train_batch_size"], 16);
  EXPECT_EQ(file["train_micro_batch_size_per_gpu"], 4);
  sweep.micro = 3;  // the largest divisor of 4 below it
  EXPECT_EQ(sweep.configuration(points.back(), "", "")["train_micro_batch_size_per_gpu"], 2);
  sweep.check(points);
}

TEST(Sweep, MeshesAndBatchesThatDoNotFitAreNamed) {
  std::vector<std::string> left_out;
  Sweep sweep = tiny_sweep();
  sweep.scalings = {Scaling::strong};
  sweep.stages = {1};
  sweep.meshes = {SweepMesh::from("replicate=2+tensor=2")};
  EXPECT_THAT(names_of(sweep.points(left_out)),
              ElementsAre("one-process", "strong-stage1-replicate=2+tensor=2-world4"));
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("does not divide 2 ranks")));
  sweep = tiny_sweep();
  sweep.worlds = {3};
  EXPECT_EQ(error_of([&] { sweep.points(left_out); }),
            "--batch 4: strong, stage 0, 3 ranks has 3 data ranks; give --batch 6 (a multiple of "
            "3), or --scaling weak");
  for (const char* bad : {"", "tensor", "tensor=1", "tensor=x", "shards=2", "tensor=2,",
                          "tensor=2+tensor=4", "replicate=2147483647"}) {
    EXPECT_THAT(error_of([&] { SweepMesh::from(bad); }), HasSubstr("--meshes: found")) << bad;
  }
}

TEST(Sweep, ABatchThatDoesNotFitIsAnsweredWithOneThatDoes) {
  std::vector<std::string> left_out;
  Sweep sweep = tiny_sweep();
  sweep.worlds = {1, 2, 4, 8, 16};
  sweep.batch = 8;
  EXPECT_EQ(error_of([&] { sweep.points(left_out); }),
            "--batch 8: strong, stage 0, 16 ranks has 16 data ranks; give --batch 16 (a multiple "
            "of 16), or --scaling weak");
  sweep.batch = 16;
  sweep.check(sweep.points(left_out));
  sweep.worlds = {4, 6};
  EXPECT_THAT(error_of([&] { sweep.points(left_out); }),
              HasSubstr("6 ranks has 6 data ranks; give --batch 24 (a multiple of 12), or"));
  sweep.worlds = {1'048'573, 1'048'571};  // two primes
  EXPECT_THAT(error_of([&] { sweep.points(left_out); }),
              HasSubstr(" data ranks; give fewer --worlds, or --scaling weak"));
  sweep.scalings = {Scaling::weak};
  EXPECT_EQ(sweep.points(left_out).size(), 5U);  // one process, and two stages of each
}

TEST(Sweep, IsSimulatedOnAClusterOfItsOwnPlaces) {
  const Scratch folder;
  const auto refusal = [&](const std::string& cluster, const Sweep& sweep, const char* hosts,
                           int repeats) {
    const std::string path = folder.write("c.json", cluster);
    std::vector<std::string> left_out;
    const Launcher launcher = *hosts == 0 ? Launcher() : on_hosts(Kind::mpirun, hosts);
    const std::string why =
        error_of([&] { cluster_of_sweep(path, sweep, sweep.points(left_out), launcher, repeats); });
    return why == "no error" ? why : why.substr(why.find("c.json"));
  };
  const std::string pairs = R"({"hosts": 2, "devices": 2, "kind": "cpu", "memory": "4GB"})";
  const Sweep sweep = tiny_sweep();
  EXPECT_EQ(refusal(pairs, sweep, "a:2,b:2", 3), "no error");
  EXPECT_EQ(refusal(pairs, sweep, "", 0), "no error");
  EXPECT_EQ(refusal(pairs, sweep, "a:4", 3),
            "c.json: of 4 ranks, a takes 4, and a host of the file, with 2 devices, 2; give "
            "--hosts or --hostfile as many ranks a host as the file has devices");
  EXPECT_THAT(refusal(pairs, sweep, "a:1,b:1,c:2", 0),
              HasSubstr("of 2 ranks, a takes 1, and a host of the file, with 2 devices, 2; give"));
  EXPECT_THAT(refusal(pairs, sweep, "", 3),
              HasSubstr("of 4 ranks, this host takes 4, and a host of the file, with 2 devices, 2; "
                        "name the hosts (--hosts or --hostfile), or measure nothing: --repeats 0"));
  EXPECT_EQ(refusal(R"({"devices": 2, "kind": "cpu", "memory": "4GB"})", sweep, "a:2,b:2", 3),
            "c.json: 2 devices, expected at least the 4 ranks of --worlds; raise hosts in the "
            "file, or leave worlds above 2 out");
  EXPECT_EQ(refusal(R"({"devices": 4, "kind": "gpu", "memory": "40GB"})", sweep, "", 0),
            "c.json: kind is gpu, expected that of --device cpu; add --device cuda");
  Sweep on_gpus = sweep;
  on_gpus.device = DeviceKind::cuda;
  EXPECT_EQ(refusal(pairs, on_gpus, "", 0),
            "c.json: kind is cpu, expected that of --device cuda; leave out --device cuda");
}

TEST(Sweep, APointIsMeasuredOnceHoweverOftenItIsNamed) {
  std::vector<std::string> left_out;
  Sweep sweep = tiny_sweep();
  sweep.scalings = {Scaling::strong, Scaling::strong};
  sweep.worlds = {2, 2};
  sweep.stages = {3, 3};
  EXPECT_THAT(names_of(sweep.points(left_out)), ElementsAre("one-process", "strong-stage3-world2"));
  sweep.meshes = {SweepMesh::from("replicate=65536+tensor=65536")};  // 2^32
  EXPECT_THAT(names_of(sweep.points(left_out)), ElementsAre("one-process"));
}

TEST(Sweep, OverridesOfWhatItSetsAreRefused) {
  std::vector<std::string> left_out;
  Sweep sweep = tiny_sweep();
  const std::vector<ScalePoint> points = sweep.points(left_out);
  sweep.overrides = {"mesh.tensor=2"};
  EXPECT_THAT(error_of([&] { sweep.check(points); }),
              HasSubstr("--set mesh.tensor=2: the sweep sets mesh.tensor; give --meshes"));
  for (const char* each : {"run={}", "model.layers=3", "run.device=cuda", "data=null"}) {
    sweep.overrides = {each};
    EXPECT_THAT(error_of([&] { sweep.check(points); }), HasSubstr("the sweep sets")) << each;
  }
  sweep.overrides = {"run.thread=2"};
  EXPECT_THAT(error_of([&] { sweep.check(points); }), HasSubstr("run.threads"));
  sweep.overrides = {"run.threads=2"};
  sweep.check(points);
}

}  // namespace
}  // namespace zero
