#include "model_smoke/layers/norm.h"

#include <cmath>
#include <cstring>

namespace quern::smoke {
namespace {

float silu(float x) {
  return x / (1.0f + std::exp(-x));
}

template <typename T>
float inverse_rms(const T* x, int64_t n, float eps) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += to_float(x[i]) * to_float(x[i]);
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
}

template <typename T>
void rms_norm_row(const T* x, const float* w, int64_t n, float eps, T* y) {
  const float r = inverse_rms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(to_float(x[i]) * r * (1.0f + w[i]));
}

template <typename T>
void gated_rms_norm_row(const T* x, const T* z, const float* w, int64_t n, float eps, T* y) {
  const float r = inverse_rms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) {
    const float normed = round_to<T>(to_float(x[i]) * r);
    y[i] = from_float<T>(normed * w[i] * silu(to_float(z[i])));
  }
}

template <typename T>
void silu_mul_row(const T* gate, const T* up, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(silu(to_float(gate[i])) * to_float(up[i]));
}

template <typename T>
T* row_of(MutableMatrixView m, int64_t r) {
  return static_cast<T*>(m.data) + r * m.row_stride;
}
template <typename T>
const T* row_of(MatrixView m, int64_t r) {
  return static_cast<const T*>(m.data) + r * m.row_stride;
}

}  // namespace

void rms_norm(LayerExec& exec, HeadView x, VectorView w, float eps, MutableHeadView y) {
  require(x.dim == w.size && y.dim == x.dim && x.dtype == y.dtype && x.rows == y.rows &&
              x.heads == y.heads && w.dtype == DType::kF32,
          "rms_norm: shapes or types differ");
  const float* weight = static_cast<const float*>(w.data);
  with_element_type(x.dtype, [&]<typename T>(T) {
    exec.for_each(x.rows * x.heads, 0, [&](int64_t item, float*) {
      const int64_t row = item / x.heads, head = item % x.heads;
      const T* in = x.at<T>(row, head);
      T* out = y.at<T>(row, head);
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (exec.impl() == LayerImpl::kSimd) return simd::rms_norm_row(in, weight, x.dim, eps, out);
      }
      rms_norm_row(in, weight, x.dim, eps, out);
    });
  });
}

void gated_rms_norm(LayerExec& exec, HeadView x, HeadView z, VectorView w, float eps,
                    MutableHeadView y) {
  require(x.dim == w.size && y.dim == x.dim && z.dim == x.dim && x.dtype == y.dtype &&
              z.dtype == x.dtype && x.rows == y.rows && x.heads == y.heads && z.rows == x.rows &&
              z.heads == x.heads && w.dtype == DType::kF32,
          "gated_rms_norm: shapes or types differ");
  const float* weight = static_cast<const float*>(w.data);
  with_element_type(x.dtype, [&]<typename T>(T) {
    exec.for_each(x.rows * x.heads, 0, [&](int64_t item, float*) {
      const int64_t row = item / x.heads, head = item % x.heads;
      const T* in = x.at<T>(row, head);
      const T* gate = z.at<T>(row, head);
      T* out = y.at<T>(row, head);
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (exec.impl() == LayerImpl::kSimd) {
          return simd::gated_rms_norm_row(in, gate, weight, x.dim, eps, out);
        }
      }
      gated_rms_norm_row(in, gate, weight, x.dim, eps, out);
    });
  });
}

void silu_mul(LayerExec& exec, MatrixView gate, MatrixView up, MutableMatrixView y) {
  require(gate.cols == up.cols && y.cols == up.cols && gate.rows == up.rows && y.rows == up.rows &&
              gate.dtype == up.dtype && y.dtype == up.dtype,
          "silu_mul: shapes or types differ");
  with_element_type(y.dtype, [&]<typename T>(T) {
    exec.for_each(y.rows, 0, [&](int64_t row, float*) {
      const T* g = row_of<T>(gate, row);
      const T* u = row_of<T>(up, row);
      T* out = row_of<T>(y, row);
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (exec.impl() == LayerImpl::kSimd) return simd::silu_mul_row(g, u, y.cols, out);
      }
      silu_mul_row(g, u, y.cols, out);
    });
  });
}

void scale_columns(LayerExec& exec, MatrixView x, VectorView factors, MutableMatrixView y) {
  require(x.rows == y.rows && x.cols == y.cols && x.dtype == y.dtype && factors.size == x.cols &&
              factors.dtype == DType::kF32,
          "scale_columns: shapes or types differ");
  const float* factor = static_cast<const float*>(factors.data);
  with_element_type(y.dtype, [&]<typename T>(T) {
    exec.for_each(y.rows, 0, [&](int64_t row, float*) {
      const T* in = row_of<T>(x, row);
      T* out = row_of<T>(y, row);
      for (int64_t i = 0; i < y.cols; ++i) out[i] = from_float<T>(to_float(in[i]) * factor[i]);
    });
  });
}

void add_in_place(LayerExec& exec, MutableMatrixView h, MatrixView x) {
  require(h.rows == x.rows && h.cols == x.cols && h.dtype == x.dtype,
          "add_in_place: shapes or types differ");
  with_element_type(h.dtype, [&]<typename T>(T) {
    exec.for_each(h.rows, 0, [&](int64_t row, float*) {
      T* sum = row_of<T>(h, row);
      const T* add = row_of<T>(x, row);
      for (int64_t i = 0; i < h.cols; ++i) {
        sum[i] = from_float<T>(to_float(sum[i]) + to_float(add[i]));
      }
    });
  });
}

void embed(LayerExec& exec, MatrixView table, const int64_t* ids, MutableMatrixView y) {
  require(table.cols == y.cols, "embed: the table's rows have another length");
  exec.for_each(y.rows, 0, [&](int64_t row, float*) {
    if (table.dtype == y.dtype) {
      const size_t bytes = size_of(y.dtype) * static_cast<size_t>(y.cols);
      std::memcpy(
          row_of<std::byte>(y, 0) + static_cast<size_t>(row * y.row_stride) * size_of(y.dtype),
          row_of<std::byte>(table, 0) +
              static_cast<size_t>(ids[row] * table.row_stride) * size_of(table.dtype),
          bytes);
      return;
    }
    const bfloat16* in = row_of<bfloat16>(table, ids[row]);
    float* out = row_of<float>(y, row);
    for (int64_t i = 0; i < y.cols; ++i) out[i] = in[i].to_float();
  });
}

}  // namespace quern::smoke
