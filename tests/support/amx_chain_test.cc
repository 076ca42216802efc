// What the SIGILL handler passes on, to whom, and what it leaves behind.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/jit/child_process.h"
#include "tests/support/amx_trap_fixture.h"

namespace quern::amx_emu {
namespace {

using jit::in_child;

// What the last signal was, and where the handler goes on: behind the instruction.
struct Seen {
  int signal = 0;
  int code = 0;
  uint64_t rip = 0;
  uint64_t address = 0;
};
Seen seen;
sigjmp_buf go_on;

void note_and_leave(int signal, siginfo_t* info, void* context) {
  const auto* c = static_cast<const ucontext_t*>(context);
  seen = {signal, info->si_code, static_cast<uint64_t>(c->uc_mcontext.gregs[REG_RIP]),
          reinterpret_cast<uint64_t>(info->si_addr)};
  siglongjmp(go_on, 1);
}

/// Installs note_and_leave for one signal; puts the old handler back.
class Catch {
 public:
  explicit Catch(int signal) : signal_(signal) {
    struct sigaction action = {};
    action.sa_sigaction = note_and_leave;
    action.sa_flags = SA_SIGINFO;
    sigaction(signal, &action, &old_);
    seen = {};
  }
  ~Catch() { sigaction(signal_, &old_, nullptr); }

 private:
  int signal_;
  struct sigaction old_ = {};
};

/// Runs the code; true when it was left by note_and_leave.
template <typename... Args>
bool caught(const Code& code, Args... args) {
  if (sigsetjmp(go_on, 1) != 0) return true;
  code.run(args...);
  return false;
}

class AmxChain : public TrapTest {};

/// Good instructions, then a bad one at `label`.
struct BadCode {
  Xbyak::Label label;
  Code code;
  explicit BadCode(const std::function<void(Code&)>& bad)
      : code([&](Code& g) {
          g.mov(g.eax, 64);
          g.ldtilecfg(g.ptr[g.rdi]);
          g.tilezero(g.tmm0);
          g.L(label);
          bad(g);
          g.ret();
        }) {}
  uint64_t bad_rip() const { return reinterpret_cast<uint64_t>(label.getAddress()); }
};

TEST_F(AmxChain, UndefinedGoesToThePreviousHandlerAtTheInstruction) {
  const Catch previous(SIGILL);
  const Scope scope(chaining());
  ASSERT_TRUE(scope.installed()) << scope.reason();
  const BadCode bad([](Code& g) { g.tdpbssd(g.tmm0, g.tmm1, g.tmm1); });
  const Counters before = thread_counters();
  EXPECT_TRUE(caught(bad.code, Config().all(1, 4).bytes));
  EXPECT_EQ(seen.signal, SIGILL);
  EXPECT_EQ(seen.rip, bad.bad_rip());
  EXPECT_EQ(seen.address, bad.bad_rip());
  const Counters c = thread_counters() - before;
  EXPECT_EQ(c[Count::kFaults], 1u);
  EXPECT_EQ(c.instructions(), 2u);
}

TEST_F(AmxChain, GeneralProtectionIsASegmentationFaultAtTheInstruction) {
  const Catch segv(SIGSEGV);
  const Scope scope(chaining());
  const BadCode bad([](Code& g) { g.ldtilecfg(g.ptr[g.rsi]); });
  const Config good = Config().all(1, 4);
  Config wrong = good;
  wrong.tile(0, 17, 4);
  EXPECT_TRUE(caught(bad.code, good.bytes, wrong.bytes));
  EXPECT_EQ(seen.signal, SIGSEGV);
  EXPECT_EQ(seen.code, SI_KERNEL);
  EXPECT_EQ(seen.rip, bad.bad_rip());
  EXPECT_EQ(thread_tiles().rows[0], 1) << "the old configuration stays";
}

TEST_F(AmxChain, OtherIllegalInstructionsAreNotOurs) {
  const Catch previous(SIGILL);
  const Scope scope;  // abort mode: still not ours
  const Code code([](Code& g) { g.ud2(); });
  const Counters before = thread_counters();
  EXPECT_TRUE(caught(code));
  EXPECT_EQ(seen.rip, reinterpret_cast<uint64_t>(code.getCode()));
  EXPECT_EQ(thread_counters() - before, Counters{});
}

TEST_F(AmxChain, CodeBehindABatchTrapsOnItsOwn) {
  const Catch previous(SIGILL);
  const Scope scope;
  const BadCode bad([](Code& g) { g.ud2(); });
  const Counters before = thread_counters();
  EXPECT_TRUE(caught(bad.code, Config().all(1, 4).bytes));
  EXPECT_EQ(seen.rip, bad.bad_rip());
  EXPECT_EQ((thread_counters() - before).instructions(), 2u);
}

TEST_F(AmxChain, SignalsThatWereSentArePassedOn) {
  const Catch previous(SIGILL);
  const Scope scope;
  if (sigsetjmp(go_on, 1) == 0) {
    raise(SIGILL);
    FAIL() << "the handler returned";
  }
  EXPECT_EQ(seen.signal, SIGILL);
  EXPECT_LE(seen.code, 0);
}

int plain_calls = 0;

TEST_F(AmxChain, PreviousHandlerWithoutSiginfo) {
  struct sigaction action = {}, old = {};
  action.sa_handler = [](int) { ++plain_calls; };
  sigaction(SIGILL, &action, &old);
  {
    const Scope scope;
    raise(SIGILL);
    EXPECT_EQ(plain_calls, 1);
  }
  raise(SIGILL);
  EXPECT_EQ(plain_calls, 2) << "the previous handler is back";
  sigaction(SIGILL, &old, nullptr);
}

TEST_F(AmxChain, ByDefaultTheProcessDiesOfTheSignal) {
  const BadCode undefined([](Code& g) { g.tdpbssd(g.tmm0, g.tmm1, g.tmm1); });
  const BadCode protection([](Code& g) { g.ldtilecfg(g.ptr[g.rsi]); });
  const Code ud2([](Code& g) { g.ud2(); });
  const Config good = Config().all(1, 4);
  Config wrong = good;
  wrong.tile(0, 17, 4);
  const auto in_fresh_child = [](const std::function<void()>& run) {
    return in_child([&] {
      for (const int s : {SIGILL, SIGSEGV}) signal(s, SIG_DFL);  // ASan has handlers
      run();
      return 0;
    });
  };
  const auto fault = [&](const BadCode& bad) {
    const Scope scope(chaining());
    bad.code.run(good.bytes, wrong.bytes);
  };
  EXPECT_EQ(in_fresh_child([&] { fault(undefined); }), 1000 + SIGILL);
  EXPECT_EQ(in_fresh_child([&] { fault(protection); }), 1000 + SIGSEGV);
  // Neither ignored nor blocked: the kernel does not accept it either.
  EXPECT_EQ(in_fresh_child([&] {
              signal(SIGSEGV, SIG_IGN);
              signal(SIGILL, SIG_IGN);
              fault(protection);
            }),
            1000 + SIGSEGV);
  EXPECT_EQ(in_fresh_child([&] {
              sigset_t segv;
              sigemptyset(&segv);
              sigaddset(&segv, SIGSEGV);
              pthread_sigmask(SIG_BLOCK, &segv, nullptr);
              fault(protection);
            }),
            1000 + SIGSEGV);
  EXPECT_EQ(in_fresh_child([&] {
              signal(SIGILL, SIG_IGN);
              const Scope scope;
              raise(SIGILL);  // ignored: goes on
              ud2.run();      // not ignored
            }),
            1000 + SIGILL);
  EXPECT_EQ(in_fresh_child([] {
              const Scope scope;
              raise(SIGILL);
            }),
            1000 + SIGILL);
}

TEST_F(AmxChain, ScopesNest) {
  struct sigaction before = {}, after = {};
  sigaction(SIGILL, nullptr, &before);
  {
    const Scope outer;
    ASSERT_TRUE(outer.installed()) << outer.reason();
    {
      const Scope inner;
      EXPECT_TRUE(inner.installed()) << inner.reason();
      EXPECT_TRUE(handler_in_place());
    }
    EXPECT_TRUE(active());
    EXPECT_TRUE(handler_in_place());
    const Scope other(chaining());
    EXPECT_FALSE(other.installed());
    EXPECT_NE(other.reason().find("other options"), std::string::npos) << other.reason();
  }
  EXPECT_FALSE(active());
  EXPECT_FALSE(handler_in_place());
  sigaction(SIGILL, nullptr, &after);
  EXPECT_EQ(before.sa_sigaction, after.sa_sigaction);
}

TEST_F(AmxChain, AHandlerOverOursIsNoticed) {
  const int status = in_child([] {
    struct sigaction ours = {};
    {
      const Scope scope;
      struct sigaction action = {};
      action.sa_handler = SIG_DFL;
      sigaction(SIGILL, &action, &ours);
      if (handler_in_place()) return 1;
    }
    const Scope again;  // ours may still be called from below that handler
    if (again.installed() || again.reason().find("over the emulator's") == std::string::npos) {
      return 2;
    }
    sigaction(SIGILL, &ours, nullptr);
    {
      const Scope third;
      if (!third.installed() || !handler_in_place()) return 3;
      const Code release([](Code& g) {
        g.tilerelease();
        g.ret();
      });
      release.run();
    }
    return handler_in_place() ? 4 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(AmxChain, BlockedSigillIsNamed) {
  EXPECT_EQ(threads_blocking_sigill(), "");
  std::thread([] {
    sigset_t ill;
    sigemptyset(&ill);
    sigaddset(&ill, SIGILL);
    pthread_sigmask(SIG_BLOCK, &ill, nullptr);
    pthread_setname_np(pthread_self(), "deaf");
    const Scope scope;
    EXPECT_FALSE(scope.installed());
    EXPECT_NE(scope.reason().find("blocks SIGILL"), std::string::npos) << scope.reason();
    EXPECT_NE(threads_blocking_sigill().find("(deaf)"), std::string::npos)
        << threads_blocking_sigill();
  }).join();
}

TEST_F(AmxChain, ForkedChildHasTheTilesAndGoesOn) {
  const Scope scope;
  const Code configure([](Code& g) {
    g.ldtilecfg(g.ptr[g.rdi]);
    g.ret();
  });
  const Code store([](Code& g) {
    g.sttilecfg(g.ptr[g.rdi]);
    g.tilerelease();
    g.ret();
  });
  const Config config = Config().tile(3, 5, 24);
  configure.run(config.bytes);
  EXPECT_EQ(in_child([&] {
              uint8_t out[kConfigBytes] = {};
              store.run(out);
              if (std::memcmp(out, config.bytes, kConfigBytes) != 0) return 1;
              if (expect_released() != "") return 2;
              std::string text;
              std::thread([&] {
                configure.run(config.bytes);
                store.run(out);
                text = expect_released();
              }).join();
              return text == "" ? 0 : 3;
            }),
            0);
  EXPECT_NE(expect_released(), "") << "the parent's tiles are its own";
}

}  // namespace
}  // namespace quern::amx_emu
