#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "model_smoke/tensor.h"
#include "quern/tensor_view.h"
#include "quern/thread_pool.h"

namespace quern::smoke {

/// Which of the two implementations of every layer runs: the scalar twin that reads like the
/// formula (f32 or bf16 activations), or the Highway one (bf16 activations).
enum class LayerImpl { kScalar, kSimd };

/// What a layer runs on: threads, implementation, and scratch for each thread. Layers cut their
/// work into items whose arithmetic does not depend on how many threads share them, so neither do
/// the bits.
class LayerExec {
 public:
  LayerExec(ThreadPool& pool, LayerImpl impl)
      : pool_(&pool), impl_(impl), scratch_(static_cast<size_t>(pool.size())) {}

  LayerImpl impl() const noexcept { return impl_; }

  /// f(item, scratch) for every item in [0, items), items dealt out in turn so that work which
  /// grows with the item (causal attention) is spread evenly. `scratch` is 64-byte aligned, private
  /// to the thread and at least `scratch_floats` long. f must not throw.
  template <typename F>
  void for_each(int64_t items, size_t scratch_floats, F&& f) {
    for (AlignedBuffer& buffer : scratch_) buffer.reserve(scratch_floats * sizeof(float));
    struct Job {
      std::remove_reference_t<F>* f;
      int64_t items;
      std::vector<AlignedBuffer>* scratch;
    } job{&f, items, &scratch_};
    pool_->run(
        1,
        [](void* ctx, int, int tid, int nthreads) {
          Job& j = *static_cast<Job*>(ctx);
          float* scratch = reinterpret_cast<float*>((*j.scratch)[static_cast<size_t>(tid)].data());
          for (int64_t i = tid; i < j.items; i += nthreads) (*j.f)(i, scratch);
        },
        &job);
  }

 private:
  ThreadPool* pool_;
  LayerImpl impl_;
  std::vector<AlignedBuffer> scratch_;
};

/// One vector of `dim` elements for every (row, head): a head's slice of a wider matrix. Data is
/// const void, or void where it is written through.
template <typename Data>
struct BasicHeadView {
  Data* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  template <typename T>
  auto at(int64_t row, int64_t head) const noexcept {
    using Element = std::conditional_t<std::is_const_v<Data>, const T, T>;
    return static_cast<Element*>(data) + row * row_stride + head * head_stride;
  }
  operator BasicHeadView<const void>() const noexcept requires(!std::is_const_v<Data>) {
    return {data, dtype, rows, heads, dim, row_stride, head_stride};
  }
};
using HeadView = BasicHeadView<const void>;
using MutableHeadView = BasicHeadView<void>;

/// Head h is columns [offset + h * head_stride, + dim) of a MatrixView or MutableMatrixView.
template <typename Matrix>
auto heads_of(Matrix m, int64_t heads, int64_t dim, int64_t head_stride,
              int64_t offset = 0) noexcept {
  using Data = std::remove_pointer_t<decltype(m.data)>;
  return BasicHeadView<Data>{
      columns(m, offset, 0).data, m.dtype, m.rows, heads, dim, m.row_stride, head_stride};
}

/// Guards the shapes inside the program; a failure is a fault of ours, not of a checkpoint.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// Calls f(T{}) with the element type of a bf16 or f32 view.
template <typename F>
void with_element_type(DType dtype, F&& f) {
  if (dtype == DType::kF32) {
    f(float{});
  } else {
    require(dtype == DType::kBF16, "layers take f32 or bf16");
    f(bfloat16{});
  }
}

}  // namespace quern::smoke
