#include "jit/jitdump.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/jit/child_process.h"
#include "tests/jit/proc_maps.h"
#include "tests/support/temp_dir.h"

namespace quern::jit {
namespace {

using test::TempDir;

uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

/// Reads fields one after the other; `good` is false after the end.
struct Reader {
  const std::string& bytes;
  size_t at;
  size_t end;
  bool good = true;

  template <typename Int>
  Int get() {
    Int value = 0;
    good = good && at + sizeof value <= end;
    if (good) std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }
  std::string get_string() {
    const size_t zero = good ? bytes.find('\0', at) : std::string::npos;
    good = good && zero != std::string::npos && zero < end;
    if (!good) return "";
    const std::string text = bytes.substr(at, zero - at);
    at = zero + 1;
    return text;
  }
};

struct SourceLine {
  uint64_t address;
  uint32_t line, discriminator;
  std::string file;
  bool operator==(const SourceLine&) const = default;
};

struct Record {
  uint32_t id;
  uint64_t time;
  uint32_t pid = 0, tid = 0;  // of a load
  uint64_t vma = 0, address = 0, index = 0;
  std::string name, code;
  std::vector<SourceLine> lines;  // of debug info
};

struct File {
  uint32_t pid = 0;
  uint64_t time = 0;
  std::vector<Record> records;
};

/// By the specification in Linux' tools/perf/Documentation. Nothing where the file breaks it.
std::optional<File> parse(const std::string& bytes) {
  File file;
  Reader in{bytes, 0, bytes.size()};
  if (in.get<uint32_t>() != 0x4A695444 || in.get<uint32_t>() != 1) return std::nullopt;
  if (in.get<uint32_t>() != 40 || in.get<uint32_t>() != 62) return std::nullopt;  // x86-64
  if (in.get<uint32_t>() != 0) return std::nullopt;
  file.pid = in.get<uint32_t>();
  file.time = in.get<uint64_t>();
  if (in.get<uint64_t>() != 0 || !in.good) return std::nullopt;
  while (in.at < bytes.size()) {
    const size_t start = in.at;
    Record record{};
    record.id = in.get<uint32_t>();
    const uint32_t total = in.get<uint32_t>();
    record.time = in.get<uint64_t>();
    if (!in.good || total < 16 || start + total > bytes.size()) return std::nullopt;
    Reader body{bytes, in.at, start + total};
    if (record.id == 0) {
      record.pid = body.get<uint32_t>();
      record.tid = body.get<uint32_t>();
      record.vma = body.get<uint64_t>();
      record.address = body.get<uint64_t>();
      const uint64_t size = body.get<uint64_t>();
      record.index = body.get<uint64_t>();
      record.name = body.get_string();
      if (!body.good || body.at + size != body.end) return std::nullopt;
      record.code = bytes.substr(body.at, size);
    } else if (record.id == 2) {
      record.address = body.get<uint64_t>();
      const uint64_t count = body.get<uint64_t>();
      for (uint64_t i = 0; i < count && body.good; ++i) {
        SourceLine line{};
        line.address = body.get<uint64_t>();
        line.line = body.get<uint32_t>();
        line.discriminator = body.get<uint32_t>();
        line.file = body.get_string();
        record.lines.push_back(line);
      }
      if (!body.good || body.at != body.end) return std::nullopt;
    } else if (record.id != 3 || total != 16) {
      return std::nullopt;
    }
    file.records.push_back(record);
    in.at = start + total;
  }
  return file;
}

std::string dump_name(pid_t pid = getpid()) {
  return "jit-" + std::to_string(pid) + ".dump";
}

void publish(JitDump& dump, const std::string& name, uint64_t address, const std::string& bytes,
             const std::vector<CodeSection>& sections = {}) {
  GeneratedCode code;
  code.name = name;
  code.bytes.assign(bytes.begin(), bytes.end());
  code.sections = sections;
  Kernel kernel;
  kernel.entry = reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
  dump.published(code, kernel);
}

const char kName[] = "bf16_gemm.avx512.bf16u8f32.mr6.nr4.pf0.epi=none";

TEST(JitDumpTest, HeaderDebugInfoLoadAndClose) {
  const TempDir dir;
  const uint64_t before = monotonic_ns();
  {
    JitDump dump(dir.path());
    EXPECT_NE(access(dir.file(dump_name()).c_str(), F_OK), 0) << "before the first kernel";
    publish(dump, kName, 0x7f0012345000, std::string("\x53\x00\x5b\xc3", 4),
            {{0, "prologue"}, {1, "k_loop"}, {2, "return"}});
    publish(dump, "second", 0x2000, "\xc3");
  }
  const uint64_t after = monotonic_ns();
  const std::optional<File> file = parse(dir.read(dump_name()));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->pid, static_cast<uint32_t>(getpid()));
  ASSERT_EQ(file->records.size(), 4u);

  const Record& info = file->records[0];
  EXPECT_EQ(info.id, 2u);
  EXPECT_EQ(info.address, 0x7f0012345000u);
  const std::vector<SourceLine> lines = {{0x7f0012345000, 1, 0, "prologue"},
                                         {0x7f0012345001, 2, 0, "k_loop"},
                                         {0x7f0012345002, 3, 0, "return"},
                                         {0x7f0012345004, 3, 0, "return"}};
  EXPECT_EQ(info.lines, lines);

  const Record& load = file->records[1];
  EXPECT_EQ(load.id, 0u);
  EXPECT_EQ(load.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(load.tid, static_cast<uint32_t>(syscall(SYS_gettid)));
  EXPECT_EQ(load.vma, 0x7f0012345000u);
  EXPECT_EQ(load.address, 0x7f0012345000u);
  EXPECT_EQ(load.index, 0u);
  EXPECT_EQ(load.name, kName);
  EXPECT_EQ(load.code, std::string("\x53\x00\x5b\xc3", 4));

  EXPECT_EQ(file->records[2].name, "second");
  EXPECT_EQ(file->records[2].index, 1u);
  EXPECT_EQ(file->records[3].id, 3u);
  uint64_t last = before;
  for (const uint64_t time : {file->time, file->records[0].time, file->records[1].time,
                              file->records[2].time, file->records[3].time, after}) {
    EXPECT_GE(time, last);
    last = time;
  }
}

TEST(JitDumpTest, IsMappedExecutableWhileOpenAndForTheOwnerAlone) {
  const TempDir dir;
  const std::string path = dir.file(dump_name());
  const auto mapped = [&path] {
    for (const MapLine& line : proc_maps()) {
      if (line.text.find(path) != std::string::npos) return line.rights;
    }
    return std::string();
  };
  {
    JitDump dump(dir.path());
    publish(dump, "a", 0x1000, "\xc3");
    EXPECT_EQ(mapped(), "r-xp");
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_EQ(mapped(), "");
}

TEST(JitDumpTest, ReplacesAnEarlierFileAndFollowsNoLink) {
  const TempDir dir;
  std::ofstream(dir.file("victim")) << "precious";
  ASSERT_EQ(symlink(dir.file("victim").c_str(), dir.file(dump_name()).c_str()), 0);
  JitDump dump(dir.path());
  publish(dump, "a", 0x1000, "\xc3");
  EXPECT_EQ(dir.read("victim"), "precious");
  const std::optional<File> file = parse(dir.read(dump_name()));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->records.size(), 1u);
}

TEST(JitDumpTest, AMissingDirectoryIsNamed) {
  JitDump dump("/nonexistent/quern");
  try {
    publish(dump, "a", 0x1000, "\xc3");
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("/nonexistent/quern/" + dump_name()), std::string::npos);
  }
}

TEST(JitDumpTest, ContextsOfAProcessShareOneFileADirectory) {
  EXPECT_EQ(process_jitdump("/nonexistent/a"), process_jitdump("/nonexistent/a"));
  EXPECT_NE(process_jitdump("/nonexistent/a"), process_jitdump("/nonexistent/b"));
}

TEST(JitDumpTest, ManyThreadsGiveWholeRecordsWithDistinctIndices) {
  const TempDir dir;
  JitDump dump(dir.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        publish(dump, "k" + std::to_string(t), 0x1000, std::string(static_cast<size_t>(i), 'x'),
                {{0, "all"}});
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const std::optional<File> file = parse(dir.read(dump_name()));
  ASSERT_TRUE(file.has_value());
  uint64_t next = 0;
  for (const Record& record : file->records) {
    if (record.id != 0) continue;
    EXPECT_EQ(record.index, next);
    ++next;
  }
  EXPECT_EQ(next, 400u);
}

TEST(JitDumpTest, AForkedChildWritesAFileOfItsOwn) {
  const TempDir dir;
  {
    JitDump dump(dir.path());
    publish(dump, "parent", 0x1000, "\xc3");
    EXPECT_EQ(in_child([&] {
                publish(dump, "child", 0x2000, "\xc3");
                const std::optional<File> file = parse(dir.read(dump_name()));
                if (!file || file->pid != static_cast<uint32_t>(getpid())) return 1;
                return file->records.size() == 1 && file->records[0].name == "child" ? 0 : 2;
              }),
              0);
    publish(dump, "parent again", 0x3000, "\xc3");
  }
  const std::optional<File> file = parse(dir.read(dump_name()));
  ASSERT_TRUE(file.has_value());
  ASSERT_EQ(file->records.size(), 3u);
  EXPECT_EQ(file->records[1].name, "parent again");
  EXPECT_EQ(file->records[2].id, 3u);
}

// A child that ends in order runs destructors; the last record is its parent's to write.
TEST(JitDumpTest, AChildThatEndsDoesNotCloseItsParentsFile) {
  const TempDir dir;
  auto dump = std::make_unique<JitDump>(dir.path());
  publish(*dump, "parent", 0x1000, "\xc3");
  EXPECT_EQ(in_child([&] {
              dump.reset();
              return 0;
            }),
            0);
  const std::optional<File> file = parse(dir.read(dump_name()));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->records.size(), 1u);
}

TEST(JitDumpTest, ForksWhileOtherThreadsPublish) {
  const TempDir dir;
  JitDump dump(dir.path());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        publish(dump, "parent", 0x1000, "\xc3");
        usleep(100);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(in_child([&] {
                publish(dump, "child", 0x2000, "\xc3");
                return 0;
              }),
              0)
        << "round " << round;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(parse(dir.read(dump_name())).has_value());
}

// A full disk, played by a limit on the size of files: what did not fit leaves no trace.
TEST(JitDumpTest, AFullDiskLeavesWholeRecords) {
  const TempDir dir;
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {1000, 1000};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
              JitDump dump(dir.path());
              publish(dump, "fits", 0x1000, std::string(500, 'x'));
              try {
                publish(dump, "does not fit", 0x2000, std::string(600, 'y'));
                return 1;
              } catch (const std::runtime_error&) {
              }
              publish(dump, "fits as well", 0x3000, std::string(100, 'z'));
              const std::optional<File> file = parse(dir.read(dump_name()));
              if (!file) return 2;
              return file->records.size() == 2 && file->records[1].name == "fits as well" ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace quern::jit
