#include "jit/perf_map.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/jit/child_process.h"
#include "tests/support/temp_dir.h"

namespace quern::jit {
namespace {

using test::TempDir;

struct MapEntry {
  uint64_t address, bytes;
  std::string name;
  bool operator==(const MapEntry&) const = default;
};

/// What perf reads: two hexadecimal numbers without 0x, then the name up to the end of the line.
std::vector<MapEntry> parse(const std::string& text) {
  std::vector<MapEntry> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    MapEntry entry{};
    std::istringstream in(line);
    in >> std::hex >> entry.address >> entry.bytes;
    EXPECT_EQ(in.get(), ' ') << line;
    std::getline(in, entry.name);
    all.push_back(entry);
  }
  return all;
}

const void* at(uint64_t address) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
}

void publish(CodeListener& listener, const std::string& name, uint64_t address, size_t bytes) {
  GeneratedCode code;
  code.name = name;
  code.bytes.resize(bytes);
  Kernel kernel;
  kernel.entry = at(address);
  EXPECT_EQ(listener.published(code, kernel), nullptr);
}

std::string map_name(pid_t pid = getpid()) {
  return "perf-" + std::to_string(pid) + ".map";
}

const char kName[] = "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf1024.epi=bias+silu_mul";

TEST(PerfMapTest, OneLineAKernelForTheOwnerAlone) {
  const TempDir dir;
  PerfMap map(dir.path());
  EXPECT_NE(access(dir.file(map_name()).c_str(), F_OK), 0) << "before the first kernel";
  publish(map, kName, 0x7f0012345000, 0x1a2b);
  publish(map, "second kernel\nwith a break", 0x1000, 1);
  const std::vector<MapEntry> want = {{0x7f0012345000, 0x1a2b, kName},
                                      {0x1000, 1, "second kernel with a break"}};
  EXPECT_EQ(parse(dir.read(map_name())), want);
  struct stat info = {};
  ASSERT_EQ(stat(dir.file(map_name()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(PerfMapTest, SharesTheFileWithOtherJits) {
  const TempDir dir;
  std::ofstream(dir.file(map_name())) << "10 20 other\n";
  ASSERT_EQ(chmod(dir.file(map_name()).c_str(), 0644), 0);
  PerfMap first(dir.path()), second(dir.path());
  publish(first, "a", 0x100, 1);
  publish(second, "b", 0x200, 2);
  publish(first, "c", 0x300, 3);
  const std::vector<MapEntry> want = {
      {0x10, 0x20, "other"}, {0x100, 1, "a"}, {0x200, 2, "b"}, {0x300, 3, "c"}};
  EXPECT_EQ(parse(dir.read(map_name())), want);
}

TEST(PerfMapTest, EmptiesTheFileOfAnEarlierProcessWithTheSameNumber) {
  const TempDir dir;
  std::ofstream(dir.file(map_name())) << "10 20 stale\n";
  const timespec long_ago[2] = {{1000000000, 0}, {1000000000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, dir.file(map_name()).c_str(), long_ago, 0), 0);
  PerfMap map(dir.path());
  publish(map, "a", 0x100, 1);
  EXPECT_EQ(parse(dir.read(map_name())), (std::vector<MapEntry>{{0x100, 1, "a"}}));
}

TEST(PerfMapTest, RefusesWhatIsNoPlainFileOfOurs) {
  const struct {
    const char* what;
    std::function<bool(const TempDir&, const char* path)> make;
    const char* text;
  } cases[] = {
      {"symbolic link",
       [](const TempDir& dir, const char* path) {
         std::ofstream(dir.file("victim")) << "precious";
         return symlink(dir.file("victim").c_str(), path) == 0;
       },
       "cannot open"},
      {"hard link",
       [](const TempDir& dir, const char* path) {
         std::ofstream(dir.file("victim")) << "precious";
         return link(dir.file("victim").c_str(), path) == 0;
       },
       "is not a plain file"},
      {"directory", [](const TempDir&, const char* path) { return mkdir(path, 0700) == 0; },
       "cannot open"},
      {"fifo without a reader",
       [](const TempDir&, const char* path) { return mkfifo(path, 0600) == 0; }, "cannot open"},
      {"file that others may write",
       [](const TempDir&, const char* path) {
         std::ofstream(path) << "forged";
         return chmod(path, 0666) == 0;
       },
       "can be written by other users"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    const TempDir dir;
    ASSERT_TRUE(c.make(dir, dir.file(map_name()).c_str()));
    PerfMap map(dir.path());
    try {
      publish(map, "a", 0x100, 1);
      ADD_FAILURE() << "was written to";
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find(c.text), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(map_name()), std::string::npos) << e.what();
    }
    const std::string victim = dir.read("victim");
    EXPECT_TRUE(victim.empty() || victim == "precious") << victim;
  }
}

TEST(PerfMapTest, ManyThreadsLoseNothing) {
  const TempDir dir;
  PerfMap map(dir.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        publish(map, "k" + std::to_string(50 * t + i), static_cast<uint64_t>(50 * t + i), 1);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uint64_t> seen;
  for (const MapEntry& entry : parse(dir.read(map_name()))) {
    EXPECT_TRUE(seen.insert(entry.address).second) << entry.name << " twice";
    EXPECT_EQ(entry.name, "k" + std::to_string(entry.address));
  }
  EXPECT_EQ(seen.size(), 400u);
}

TEST(PerfMapTest, AForkedChildHasAFileOfItsOwnWithWhatItInherited) {
  const TempDir dir;
  PerfMap map(dir.path());
  publish(map, "parent", 0x100, 1);
  EXPECT_EQ(in_child([&] {
              publish(map, "child", 0x200, 2);
              const std::vector<MapEntry> want = {{0x100, 1, "parent"}, {0x200, 2, "child"}};
              return parse(dir.read(map_name())) == want ? 0 : 1;
            }),
            0);
  publish(map, "parent again", 0x300, 3);
  const std::vector<MapEntry> want = {{0x100, 1, "parent"}, {0x300, 3, "parent again"}};
  EXPECT_EQ(parse(dir.read(map_name())), want);
}

// Whatever the parent's threads were in the middle of: the child's first line does not wait for
// them.
TEST(PerfMapTest, ForksWhileOtherThreadsPublish) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's allocator may be locked in a child forked meanwhile";
#endif
  const TempDir dir;
  PerfMap map(dir.path());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        publish(map, "parent", 0x100, 1);
        usleep(100);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(in_child([&] {
                publish(map, "child", 0x200, 2);
                return parse(dir.read(map_name())).back().name == "child" ? 0 : 1;
              }),
              0)
        << "round " << round;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace quern::jit
