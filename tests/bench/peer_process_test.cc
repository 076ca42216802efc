#include "bench/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace quern::bench {
namespace {

/// A peer that is a shell script.
PeerProcess::Command script(const std::string& text, double timeout = 20) {
  return {{"/bin/sh", "-c", text}, {"PATH=/usr/bin:/bin"}, timeout};
}

const char* const kGood =
    "echo hello fake 1.0;"
    "while read word rest; do case $word in"
    "  setup) echo ready fast kernel;;"
    "  block) echo time 12.5 0.5 40;;"
    " esac; done";

Problem problem() {
  return *parse_problem("int8_gemm/m:1/n:16/k:16");
}

/// State letter of /proc/<pid>/stat.
char state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name;
  char state = '?';
  stat >> id >> name >> state;
  return state;
}

TEST(PeerProcess, AnswersAndIsStoppedInBetween) {
  PeerProcess peer(script(kGood));
  ASSERT_GT(peer.pid(), 0) << peer.note();
  EXPECT_EQ(peer.name(), "fake 1.0");
  EXPECT_EQ(state_of(peer.pid()), 'T');
  ASSERT_TRUE(peer.setup(problem())) << peer.note();
  EXPECT_EQ(peer.kernel(), "fast kernel");
  EXPECT_EQ(state_of(peer.pid()), 'T');
  for (int i = 0; i < 5; ++i) {
    const auto stats = peer.block(BlockBudget{});
    ASSERT_TRUE(stats) << peer.note();
    EXPECT_EQ(stats->median, 12.5);
    EXPECT_EQ(stats->mad, 0.5);
    EXPECT_EQ(stats->count, 40);
    EXPECT_EQ(state_of(peer.pid()), 'T');
  }
}

TEST(PeerProcess, GetsTheProblemString) {
  PeerProcess::Command command =
      script("echo hello fake; while read line; do echo none got $line; done");
  command.cold_bytes = 1234;
  PeerProcess peer(command);
  EXPECT_FALSE(peer.setup(problem()));
  EXPECT_EQ(peer.note(), "got setup 1234 int8_gemm/m:1/n:16/k:16");
  EXPECT_GT(peer.pid(), 0);  // having none of it is no reason to die
}

TEST(PeerProcess, DeathDuringABlockIsNamedAndTheNextProblemRuns) {
  // Dies by signal the first time it is asked for a block; the file remembers.
  const std::string mark = testing::TempDir() + "/quern_peer_" + std::to_string(getpid());
  const std::string text =
      "echo hello fake;"
      "while read word rest; do case $word in"
      "  setup) echo ready kernel;;"
      "  block) if [ -e " +
      mark +
      " ]; then echo time 1 0 1;"
      "         else : > " +
      mark +
      "; kill -SEGV $$; fi;;"
      " esac; done";
  PeerProcess peer(script(text));
  ASSERT_TRUE(peer.setup(problem()));
  EXPECT_FALSE(peer.block(BlockBudget{}));
  EXPECT_NE(peer.note().find("died of signal 11"), std::string::npos) << peer.note();
  EXPECT_EQ(peer.pid(), 0);
  EXPECT_FALSE(peer.block(BlockBudget{}));  // still dead, still no crash
  ASSERT_TRUE(peer.setup(problem())) << peer.note();
  EXPECT_TRUE(peer.block(BlockBudget{}));
  std::remove(mark.c_str());
}

TEST(PeerProcess, DeathWhileStoppedIsSeen) {
  PeerProcess peer(script(kGood));
  ASSERT_TRUE(peer.setup(problem()));
  kill(peer.pid(), SIGKILL);
  EXPECT_FALSE(peer.block(BlockBudget{}));
  EXPECT_NE(peer.note().find("signal 9"), std::string::npos) << peer.note();
}

TEST(PeerProcess, GivesUpOnOneThatAlwaysDies) {
  PeerProcess peer(script("echo hello fake; read line; exit 3"));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(peer.setup(problem()));
    EXPECT_NE(peer.note().find("exited with code 3"), std::string::npos)
        << i << ": " << peer.note();
  }
}

TEST(PeerProcess, OneThatCannotStartIsNoPeer) {
  PeerProcess missing({{"/no/such/program"}, {}, 20});
  EXPECT_EQ(missing.pid(), 0);
  EXPECT_NE(missing.note().find("code 127"), std::string::npos) << missing.note();
  PeerProcess mute(script("exit 0"));
  EXPECT_EQ(mute.pid(), 0);
  EXPECT_FALSE(mute.setup(problem()));
}

TEST(PeerProcess, NonsenseAndSilenceEndIt) {
  PeerProcess nonsense(script("echo hello fake; while read line; do echo banana; done"));
  EXPECT_FALSE(nonsense.setup(problem()));
  EXPECT_NE(nonsense.note().find("banana"), std::string::npos) << nonsense.note();
  PeerProcess silent(script("echo hello fake; while read line; do :; done", 1));
  EXPECT_FALSE(silent.setup(problem()));
  EXPECT_NE(silent.note().find("no answer within 1 s"), std::string::npos) << silent.note();
}

/// Answers with its cap and its process, so that a test sees which child ran.
const char* const kShowsCap =
    "echo hello fake; while read word rest; do"
    "  echo ready cap=$DNNL_MAX_CPU_ISA/$ONEDNN_MAX_CPU_ISA pid=$$; done";

TEST(PeerProcess, MayUseNoMoreThanTheLevelOfTheRow) {
  PeerProcess peer(script(kShowsCap));
  Problem p = problem();
  p.isa = IsaLevel::kAvx512;
  ASSERT_TRUE(peer.setup(p)) << peer.note();
  EXPECT_EQ(peer.kernel().rfind("cap=AVX512_CORE_BF16/AVX512_CORE_BF16 pid=", 0), 0u)
      << peer.kernel();
  EXPECT_EQ(peer.isa_cap(), "AVX512_CORE_BF16");
  const std::string first = peer.kernel();
  ASSERT_TRUE(peer.setup(p));
  EXPECT_EQ(peer.kernel(), first);  // the same child as long as the level stays
  for (int i = 0; i < 10; ++i) {    // changing the level is no crash: it may happen at every row
    p.isa = i % 2 == 0 ? IsaLevel::kAmx : IsaLevel::kAvx512;
    ASSERT_TRUE(peer.setup(p)) << i << ": " << peer.note();
    EXPECT_EQ(peer.kernel().rfind(i % 2 == 0 ? "cap=/ pid=" : "cap=AVX512_CORE_BF16/", 0), 0u)
        << peer.kernel();
  }
}

TEST(PeerProcess, MayUseEverythingWhenAsked) {
  PeerProcess::Command command = script(kShowsCap);
  command.isa = PeerIsa::kBest;
  PeerProcess peer(command);
  Problem p = problem();
  p.isa = IsaLevel::kAvx512;
  ASSERT_TRUE(peer.setup(p)) << peer.note();
  EXPECT_EQ(peer.kernel().rfind("cap=/ pid=", 0), 0u) << peer.kernel();
  EXPECT_EQ(peer.isa_cap(), "");
}

TEST(PeerProcess, AKernelAboveTheCapIsNotCompared) {
  PeerProcess::Command command =
      script("echo hello fake; while read line; do echo ready brg:avx512_core_amx_int8; done");
  PeerProcess capped(command);
  EXPECT_FALSE(capped.setup(problem()));
  EXPECT_NE(capped.note().find("amx_int8 in spite of the cap AVX512_CORE_BF16"), std::string::npos)
      << capped.note();
  command.isa = PeerIsa::kBest;
  EXPECT_TRUE(PeerProcess(command).setup(problem()));
}

TEST(PeerEnvironment, OpenMpIsSetAndOpenBlasIsGone) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  setenv("OMP_NUM_THREADS", "77", 1);
  setenv("DNNL_MAX_CPU_ISA", "SSE41", 1);  // a cap that no report would tell of
  setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
  setenv("QUERN_TEST_KEEPS_THIS", "yes", 1);
  int threads = 0;
  bool kept = false;
  for (const std::string& variable : peer_environment(3)) {
    EXPECT_NE(variable.rfind("OPENBLAS_", 0), 0u) << variable;
    EXPECT_EQ(variable.find("_MAX_CPU_ISA="), std::string::npos) << variable;
    if (variable.rfind("OMP_NUM_THREADS=", 0) == 0) {
      ++threads;
      EXPECT_EQ(variable, "OMP_NUM_THREADS=3");
    }
    kept = kept || variable == "QUERN_TEST_KEEPS_THIS=yes";
  }
  EXPECT_EQ(threads, 1);
  EXPECT_TRUE(kept);
}

}  // namespace
}  // namespace quern::bench
