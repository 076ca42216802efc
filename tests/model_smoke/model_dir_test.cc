#include "model_smoke/model_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/temp_dir.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::TempDir;
namespace fs = std::filesystem;

TEST(ModelDir, OpensFilesBelow) {
  const TempDir dir;
  fs::create_directories(dir.file("a/b"));
  dir.write("x", "one");
  dir.write("a/b/y", "two");
  const ModelDir m(dir.path());
  EXPECT_EQ(m.open("x").text(), "one");
  EXPECT_EQ(m.open("a/b/y").text(), "two");
  EXPECT_TRUE(m.exists("a/b/y"));
  EXPECT_FALSE(m.exists("a/b/z"));
  EXPECT_FALSE(m.exists("nothing/z"));
  EXPECT_EQ(m.open("a/b/y").name(), dir.path() + "/a/b/y");
}

TEST(ModelDir, FollowsLinksThatStayInside) {
  const TempDir dir;
  fs::create_directories(dir.file("snapshot/deep"));
  fs::create_directories(dir.file("blobs"));
  dir.write("blobs/123", "weights");
  fs::create_symlink("../../blobs/123", dir.file("snapshot/deep/model"));
  fs::create_symlink("snapshot/deep", dir.file("latest"));
  const ModelDir m(dir.path());
  EXPECT_EQ(m.open("snapshot/deep/model").text(), "weights");
  EXPECT_EQ(m.open("latest/model").text(), "weights");
  // The same link seen from a directory it leaves.
  const ModelDir inner(dir.file("snapshot"));
  EXPECT_THROW((void)inner.open("deep/model"), InputError);
}

TEST(ModelDir, TheDirectoryItselfMayBeALink) {
  const TempDir dir;
  fs::create_directory(dir.file("real"));
  dir.write("real/x", "one");
  fs::create_directory_symlink("real", dir.file("link"));
  EXPECT_EQ(ModelDir(dir.file("link")).open("x").text(), "one");
}

TEST(ModelDir, MustBeADirectory) {
  const TempDir dir;
  dir.write("x", "one");
  EXPECT_THROW(ModelDir{dir.file("x")}, InputError);
  EXPECT_THROW(ModelDir{dir.file("y")}, InputError);
  EXPECT_THROW(ModelDir{""}, InputError);
}

TEST(ModelDir, LimitsTextFiles) {
  const TempDir dir;
  dir.write("x", "12345");
  const ModelDir m(dir.path());
  EXPECT_EQ(m.read_text("x", 5), "12345");
  EXPECT_THROW((void)m.read_text("x", 4), InputError);
}

// Somebody swaps a file for a link to the outside while we open it: the outside never comes in.
TEST(ModelDir, SwapRaceNeverLeavesTheDirectory) {
  const TempDir outside;
  outside.write("secret", "secret");
  const TempDir dir;
  fs::create_directory(dir.file("sub"));
  dir.write("sub/x", "public");
  fs::create_symlink(fs::relative(outside.path(), dir.file("")).string(), dir.file("evil"));
  outside.write("x", "secret");
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    while (!stop) {
      // Exchanges the directory for the link that leads outside, and back.
      (void)!syscall(SYS_renameat2, AT_FDCWD, dir.file("sub").c_str(), AT_FDCWD,
                     dir.file("evil").c_str(), 2u /* RENAME_EXCHANGE */);
    }
  });
  const ModelDir m(dir.path());
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      EXPECT_EQ(m.open("sub/x").text(), "public");
      ++opened;
    } catch (const InputError&) {
    }
  }
  stop = true;
  swapper.join();
  RecordProperty("opened", opened);
}

// Bug log F15: one function resolves names. Nothing else in model_smoke builds a path from parts.
TEST(ModelDir, NoOtherCodeJoinsPaths) {
  const char* const joins[] = {"+ \"/\"", "\"/\" +", "std::filesystem", "openat("};
  for (const auto& entry :
       fs::recursive_directory_iterator(quern::test::source_dir() + "/model_smoke")) {
    const std::string name = entry.path().filename().string();
    const std::string ext = entry.path().extension().string();
    if ((ext != ".cc" && ext != ".h") || name == "model_dir.cc") continue;
    const std::string text = test::read_file(entry.path().string());
    for (const char* join : joins) {
      EXPECT_EQ(text.find(join), std::string::npos) << entry.path() << " holds " << join;
    }
  }
}

TEST(FileMap, ReadingGivesWhatMappingGives) {
  const TempDir dir;
  const std::string text(10'000, 'q');
  dir.write("x", text);
  const FileMap mapped = FileMap::open_user_file(dir.file("x"));
  const FileMap copied = FileMap::open_user_file(dir.file("x"), FileMap::Method::kRead);
  EXPECT_TRUE(mapped.is_mapped());
  EXPECT_FALSE(copied.is_mapped());
  EXPECT_EQ(mapped.text(), text);
  EXPECT_EQ(copied.text(), text);
}

TEST(FileMap, MovesKeepTheBytes) {
  const TempDir dir;
  dir.write("x", "12345");
  for (const auto method : {FileMap::Method::kMapElseRead, FileMap::Method::kRead}) {
    FileMap a = FileMap::open_user_file(dir.file("x"), method);
    FileMap b(std::move(a));
    FileMap c = FileMap::open_user_file(dir.file("x"), method);
    c = std::move(b);
    EXPECT_EQ(c.text(), "12345");
  }
}

TEST(FileMap, EmptyFile) {
  const TempDir dir;
  dir.write("x", "");
  EXPECT_EQ(FileMap::open_user_file(dir.file("x")).size(), 0u);
}

TEST(FileMap, SeesThatTheFileChanged) {
  const TempDir dir;
  dir.write("x", std::string(8192, 'x'));
  const FileMap map = FileMap::open_user_file(dir.file("x"));
  EXPECT_NO_THROW(map.check_unchanged());
  fs::resize_file(dir.file("x"), 4096);
  EXPECT_THROW(map.check_unchanged(), InputError);
  fs::resize_file(dir.file("x"), 16384);
  EXPECT_THROW(map.check_unchanged(), InputError);
}

TEST(FileMap, OnlyRegularFiles) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_THROW((void)FileMap::open_user_file(dir.file("pipe")), InputError);
  EXPECT_THROW((void)FileMap::open_user_file(dir.path()), InputError);
  EXPECT_THROW((void)FileMap::open_user_file("/dev/null"), InputError);
}

// Makes mmap of files fail as it does on file systems without mappings. Anonymous ones still work.
bool refuse_file_mappings() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffffu, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (ENODEV & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(code), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Bug log F10.
TEST(FileMap, ReadsWhereMappingIsRefused) {
  const TempDir dir;
  dir.write("x", "12345");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!refuse_file_mappings()) _exit(77);
    try {
      const FileMap map = FileMap::open_user_file(dir.file("x"));
      _exit(!map.is_mapped() && map.text() == "12345" ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace quern::smoke
