// Multiplies a small matrix by packed int8 weights. README.md quotes the lines between the marks;
// readme_test compares the two, install_consumer and subproject_consumer compile and run them.
// [readme]
#include <cstdio>
#include <vector>

#include "quern/quern.h"

int fail(const quern::Status& status) {
  std::printf("quern: %s\n", status.message().c_str());
  return 1;
}

int main() {
  const int64_t m = 2, n = 3, k = 4;
  const std::vector<int8_t> codes = {1, 2, 3, 4, 0, 1, 0, 1, -128, 0, 0, 127};  // [n, k]
  const std::vector<float> scale = {1.0f, 0.5f, 0.25f};                         // one a channel
  const std::vector<float> a = {1, 0, 0, 1, 0, 127, 0, 0};                      // [m, k]
  std::vector<float> c(m * n);
  std::puts("quern " QUERN_VERSION);

  quern::Int8GemmDesc desc;  // W8A8: the rows of A are quantized inside
  desc.n = n;
  desc.k = k;
  desc.a = desc.c = quern::DType::kF32;
  const auto plan = quern::Int8Gemm::create(quern::Context{}, desc);  // generates the kernels
  if (!plan.ok()) return fail(plan.status());
  const auto weights =
      plan->pack({quern::matrix_view(codes.data(), n, k), quern::vector_view(scale.data(), n)});
  if (!weights.ok()) return fail(weights.status());

  std::vector<std::byte> scratch(plan->scratch_bytes(m));  // run() never allocates
  quern::Int8GemmArgs args;
  args.a = quern::matrix_view(a.data(), m, k);
  args.weights = &*weights;
  args.c = quern::mutable_matrix_view(c.data(), m, n);
  const quern::Status status = plan->run(args, scratch);
  if (!status.ok()) return fail(status);
  for (int64_t i = 0; i < m * n; ++i) std::printf("%g%c", c[i], i % n == n - 1 ? '\n' : ' ');
}
// [readme]
