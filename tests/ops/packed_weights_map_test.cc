// Packed weights saved and mapped: the same bits, from the file's own pages, for as long as wanted.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <thread>

#include "ops/packed_weights_builder.h"
#include "ops/weight_packing.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/packed_file.h"
#include "tests/support/guard_buffer.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

constexpr WeightLayout kLayouts[] = {
    WeightLayout::kBf16Vnni2N16,       WeightLayout::kU8Vnni4N16,
    WeightLayout::kBf16Vnni2N16GateUp, WeightLayout::kU8Vnni4N16GateUp,
    WeightLayout::kU4Vnni8N16,         WeightLayout::kU4Vnni8N16GateUp,
    WeightLayout::kE4M3Vnni2N16,       WeightLayout::kE4M3Vnni2N16GateUp,
    WeightLayout::kE5M2Vnni2N16,       WeightLayout::kE5M2Vnni2N16GateUp,
    WeightLayout::kE4M3Vnni2N16Batch};

std::string bytes_of(const PackedWeights& w) {
  return std::string(reinterpret_cast<const char*>(w.data()), w.bytes());
}

PackedWeights saved_and_mapped(const PackedWeights& weights, const std::string& path) {
  const Status saved = weights.save(path);
  EXPECT_TRUE(saved.ok()) << saved.message();
  MapWeightsOptions options;
  options.verify = true;
  const auto mapped = PackedWeights::map(path, options);
  EXPECT_TRUE(mapped.ok()) << mapped.status().message();
  return mapped.ok() ? *mapped : PackedWeights();
}

TEST(PackedWeightsMap, ComesBackAsItWas) {
  const TempDir dir;
  for (const WeightLayout layout : kLayouts) {
    for (const auto& [n, k] : {std::pair{1, 1}, {16, 64}, {17, 33}, {300, 129}, {0, 5}, {5, 0}}) {
      const PackedWeights weights = make_weights(layout, n, k);
      const PackedWeights mapped = saved_and_mapped(weights, dir.file("w"));
      EXPECT_EQ(mapped.layout(), layout);
      EXPECT_EQ(mapped.n(), n);
      EXPECT_EQ(mapped.k(), k);
      EXPECT_EQ(mapped.panel_bytes(), weights.panel_bytes());
      EXPECT_EQ(mapped.bytes(), weights.bytes());
      EXPECT_EQ(bytes_of(mapped), bytes_of(weights)) << to_string(layout) << ' ' << n << ' ' << k;
      ASSERT_EQ(mapped.scales() == nullptr, weights.scales() == nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.data()) % 4096, 0u);
      EXPECT_FALSE(mapped.empty());
      // And once more from the mapped ones.
      EXPECT_EQ(bytes_of(saved_and_mapped(mapped, dir.file("again"))), bytes_of(weights));
    }
  }
}

TEST(PackedWeightsMap, Int4ComesBackAsItWas) {
  const TempDir dir;
  for (const auto& [n, k] : {std::pair{1, 1}, {16, 64}, {17, 33}, {300, 129}, {0, 5}, {5, 0}}) {
    for (int variant = 0; variant < 18; ++variant) {
      const WeightGroups grouped = {24, 0,
                                    std::array{DType::kF16, DType::kBF16, DType::kF32}[variant % 3],
                                    static_cast<Int4Zeros>(variant / 3 % 3), variant >= 9};
      const PackedWeights weights = make_int4_weights(WeightLayout::kU4Vnni8N16, n, k, grouped);
      const PackedWeights mapped = saved_and_mapped(weights, dir.file("w"));
      EXPECT_EQ(bytes_of(mapped), bytes_of(weights)) << variant << ' ' << n << ' ' << k;
      EXPECT_EQ(mapped.group(), std::min(k, 24));
      EXPECT_EQ(mapped.groups(), (k + 23) / 24);
      EXPECT_EQ(mapped.scale_dtype(), grouped.scale);
      EXPECT_EQ(mapped.zeros(), grouped.zeros);
      EXPECT_EQ(mapped.act_order(), grouped.act_order);
      const auto offset = [](const PackedWeights& w, const void* section) {
        return section == nullptr ? -1 : static_cast<const std::byte*>(section) - w.data();
      };
      EXPECT_EQ(mapped.scales(), nullptr);
      EXPECT_EQ(offset(mapped, mapped.group_scales()), offset(weights, weights.group_scales()));
      EXPECT_EQ(offset(mapped, mapped.group_zeros()), offset(weights, weights.group_zeros()));
      EXPECT_NE(mapped.group_scales(), nullptr);
      EXPECT_EQ(mapped.group_zeros() != nullptr, grouped.zeros != Int4Zeros::kSymmetric);
      EXPECT_EQ(mapped.order() != nullptr, grouped.act_order);
    }
  }
}

// A is read where act_order says: what map() checked must be what run() reads.
TEST(PackedWeightsMap, AnOrderThatChangesInTheFileIsNotRead) {
  const TempDir dir;
  const WeightGroups grouped{24, 2, DType::kF16, Int4Zeros::kSymmetric, true};
  const PackedWeights weights = make_int4_weights(WeightLayout::kU4Vnni8N16, 16, 48, grouped);
  const std::string path = dir.file("w");
  const PackedWeights mapped = saved_and_mapped(weights, path);
  ASSERT_NE(mapped.order(), nullptr);
  const auto at = reinterpret_cast<const std::byte*>(weights.order()) - weights.data() + 4096;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const int32_t far = 0x07000000;
  file.seekp(at).write(reinterpret_cast<const char*>(&far), sizeof far);
  file.close();
  for (int64_t d = 0; d < 48; ++d) ASSERT_EQ(mapped.order()[d], weights.order()[d]) << d;
}

TEST(PackedWeightsMap, ABatchComesBackAsItWas) {
  const TempDir dir;
  SerialPool pool;
  const std::vector<int8_t> values(3 * 17 * 33, 5);
  const std::vector<float> scale = {1, 2, 3};
  for (const int64_t batch : {0, 1, 3}) {
    BmmWeights w;
    w.values = batch_view(values.data(), batch, 17, 33);
    w.scale = matrix_view(scale.data(), batch, 1);
    const auto weights = pack_batch(pool, w);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_EQ(weights->batch(), batch);
    const PackedWeights mapped = saved_and_mapped(*weights, dir.file("w"));
    EXPECT_EQ(mapped.batch(), batch);
    EXPECT_EQ(mapped.n(), 17);
    EXPECT_EQ(bytes_of(mapped), bytes_of(*weights));
    for (int64_t i = 0; i < batch; ++i) {
      EXPECT_EQ(mapped.scales()[i * 32 + 16], scale[static_cast<size_t>(i)]);
      EXPECT_EQ(mapped.scales()[i * 32 + 17], 0.0f);
    }
  }
}

/// The line of /proc/self/maps that covers `p`.
std::string mapping_of(const void* p) {
  std::ifstream maps("/proc/self/maps");
  const auto address = reinterpret_cast<uintptr_t>(p);
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const uintptr_t first = std::strtoull(line.c_str(), &end, 16);
    const uintptr_t last = std::strtoull(end + 1, nullptr, 16);
    if (first <= address && address < last) return line;
  }
  return "";
}

TEST(PackedWeightsMap, IsTheFileItselfReadOnlyAndShared) {
  const TempDir dir;
  const std::string path = dir.file("shared.qpw");
  const PackedWeights mapped =
      saved_and_mapped(make_weights(WeightLayout::kU8Vnni4N16, 40, 40), path);
  const std::string line = mapping_of(mapped.data());
  EXPECT_NE(line.find(" r--s "), std::string::npos) << line;
  EXPECT_NE(line.find("shared.qpw"), std::string::npos) << line;
  EXPECT_NE(line.find(" 00000000 "), std::string::npos) << "not mapped from its start: " << line;
}

TEST(PackedWeightsMap, LivesAsLongAsAnyCopy) {
  const TempDir dir;
  const std::string path = dir.file("w.qpw");
  PackedWeights copy;
  std::string expected;
  {
    const PackedWeights weights = make_weights(WeightLayout::kU8Vnni4N16, 33, 70);
    expected = bytes_of(weights);
    const PackedWeights mapped = saved_and_mapped(weights, path);
    copy = mapped;
  }
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(bytes_of(copy), expected);
  const std::byte* const where = copy.data();
  copy = PackedWeights();
  EXPECT_EQ(mapping_of(where).find("w.qpw"), std::string::npos) << "still mapped";
}

TEST(PackedWeightsMap, SavingOverAMappedFileLeavesTheMappingWhole) {
  const TempDir dir;
  const std::string path = dir.file("w.qpw");
  const PackedWeights first = make_weights(WeightLayout::kBf16Vnni2N16, 300, 40);
  const PackedWeights mapped = saved_and_mapped(first, path);
  const PackedWeights second = make_weights(WeightLayout::kU8Vnni4N16, 1, 2);
  EXPECT_EQ(bytes_of(saved_and_mapped(second, path)), bytes_of(second));
  EXPECT_EQ(bytes_of(mapped), bytes_of(first));
  EXPECT_EQ(dir.entries(), 1) << "a temporary file was left";
}

TEST(PackedWeightsMap, SaveSaysWhatFailed) {
  const TempDir dir;
  const PackedWeights weights = make_weights(WeightLayout::kBf16Vnni2N16, 3, 3);
  EXPECT_EQ(PackedWeights().save(dir.file("w")).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(weights.save("").code(), StatusCode::kInvalidArgument);
  const Status absent = weights.save(dir.file("no/w"));
  EXPECT_EQ(absent.code(), StatusCode::kIoError);
  EXPECT_NE(absent.message().find("no/w: cannot create a file in its directory: No such file"),
            std::string::npos)
      << absent.message();
  const Status onto_directory = weights.save(dir.path());
  EXPECT_EQ(onto_directory.code(), StatusCode::kIoError);
  EXPECT_NE(onto_directory.message().find("cannot rename to"), std::string::npos)
      << onto_directory.message();
  EXPECT_EQ(dir.entries(), 0) << "a temporary file was left";
}

// A full disk, played by a limit on file sizes, in a process of its own because the limit is final.
TEST(PackedWeightsMap, AFileThatCannotBeFinishedLeavesTheOldOne) {
  const TempDir dir;
  const std::string path = dir.file("w.qpw");
  const PackedWeights old = make_weights(WeightLayout::kU8Vnni4N16, 5, 5);
  ASSERT_TRUE(old.save(path).ok());
  const PackedWeights large = make_weights(WeightLayout::kBf16Vnni2N16, 256, 64);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {10000, 10000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(3);
    const Status s = large.save(path);
    const bool said = s.code() == StatusCode::kIoError && s.value(0) == EFBIG;
    _exit(said ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(dir.entries(), 1) << "a temporary file was left";
  const auto mapped = PackedWeights::map(path);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_EQ(bytes_of(*mapped), bytes_of(old));
}

TEST(PackedWeightsMap, ReadersSeeOneFileOrTheOther) {
  const TempDir dir;
  const std::string path = dir.file("w.qpw");
  const PackedWeights weights[] = {make_weights(WeightLayout::kU8Vnni4N16, 20, 30),
                                   make_weights(WeightLayout::kBf16Vnni2N16, 50, 60)};
  ASSERT_TRUE(weights[0].save(path).ok());
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      MapWeightsOptions options;
      options.verify = true;
      for (int i = 0; i < 25; ++i) {
        if (t < 4) faults += !weights[t % 2].save(path).ok();
        const auto seen = PackedWeights::map(path, options);
        const int which = seen.ok() && seen->layout() == weights[1].layout() ? 1 : 0;
        faults += !seen.ok() || bytes_of(*seen) != bytes_of(weights[which]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(faults.load(), 0);
  EXPECT_EQ(dir.entries(), 1);
}

using GemmMappedWeightsTest = GemmTest;

TEST_P(GemmMappedWeightsTest, SameBitsAsFromMemory) {
  const TempDir dir;
  uint64_t variant = 40;
  for (const char* shape : {"m:1/n:17/k:33", "m:7/n:48/k:512", "m:33/n:100/k:130"}) {
    for (const bool gate_up : {false, true}) {
      GemmCase c = make_case(kind(), shape);
      vary(c, ++variant);
      c.residual_is_c = false;  // the second run must start from the same operands
      c.problem.epilogue.activation = gate_up ? Activation::kSiluMul : Activation::kNone;
      GemmData data(c);
      Result<GemmOp> op = GemmOp::create(ctx(), c);
      ASSERT_TRUE(op.ok()) << op.status().message();
      ASSERT_TRUE(op->pack(data).ok());
      const std::vector<uint32_t> expected = output_bits(*op, c, data);
      const PackedWeights packed = op->packed();
      op->use(saved_and_mapped(packed, dir.file("w")));
      EXPECT_EQ(output_bits(*op, c, data), expected) << to_string(c);
      // Again from read-only memory between two pages that fault: not one byte beyond the payload.
      GuardBuffer guarded(packed.bytes(), Flush::kEnd);
      std::memcpy(guarded.data(), packed.data(), packed.bytes());
      guarded.make_read_only();
      const WeightShape packed_shape = PackedWeightsBuilder::shape_of(packed);
      const auto geometry = weight_geometry(packed_shape);
      op->use(PackedWeightsBuilder::over(
          packed_shape, *geometry,
          {reinterpret_cast<const std::byte*>(guarded.data()), [](const std::byte*) {}}));
      EXPECT_EQ(output_bits(*op, c, data), expected) << to_string(c);
    }
  }
}

TEST_P(GemmMappedWeightsTest, PlansRefuseWhatIsNotTheirs) {
  if (!has_plain_weights())
    GTEST_SKIP() << "Int4ErrorsTest and Fp4ErrorsTest have weights of other groups and zeros";
  const TempDir dir;
  const GemmCase c = make_case(kind(), 2, 20, 30);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  const WeightLayout own = c.is_int8()  ? WeightLayout::kU8Vnni4N16
                           : c.is_fp8() ? WeightLayout::kE4M3Vnni2N16
                                        : WeightLayout::kBf16Vnni2N16;
  const auto says = [&](WeightLayout layout, int64_t n, int64_t k) {
    op->use(saved_and_mapped(make_weights(layout, n, k), dir.file("w")));
    return op->run(args_of(c, data)).message();
  };
  EXPECT_EQ(says(own, 20, 30), "ok");
  EXPECT_NE(says(own, 21, 30).find("weights.n (21) must equal desc.n (20)"), std::string::npos);
  EXPECT_NE(says(own, 20, 31).find("weights.k (31) must equal desc.k (30)"), std::string::npos);
  for (const WeightLayout layout : kLayouts) {
    if (layout == own) continue;
    EXPECT_NE(says(layout, 20, 30).find("weights.layout"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmMappedWeightsTest, every_gemm(), gemm_test_name);

}  // namespace
}  // namespace quern::test
