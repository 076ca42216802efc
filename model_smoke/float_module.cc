#include "model_smoke/float_module.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

int64_t blocks(int64_t size, int64_t block) noexcept {
  return block < 0 ? 1 : (size + block - 1) / block;
}

const TensorView& need(const Checkpoint& c, const std::string& name) {
  const TensorView* t = c.find(name);
  if (t == nullptr) throw InputError(c.source(), name, "a tensor of this name", "none");
  return *t;
}

void require_matrix(const TensorView& t, FileDType dtype, int64_t rows, int64_t cols) {
  if (t.dtype == dtype && t.shape == std::vector<int64_t>{rows, cols}) return;
  throw InputError(t.file, t.name, fmt::format("{} [{}, {}]", to_string(dtype), rows, cols),
                   describe(t), "config.json and the tensor disagree");
}

bool is_scalar(const TensorView& t) {
  return t.shape.empty() || t.shape == std::vector<int64_t>{1};
}

DType scale_type(const TensorView& t) {
  switch (t.dtype) {
    case FileDType::kF32:
      return DType::kF32;
    case FileDType::kBF16:
      return DType::kBF16;
    case FileDType::kF16:
      return DType::kF16;
    default:
      throw InputError(t.file, t.name, "dtype F32, BF16 or F16", describe(t));
  }
}

std::byte* bytes_of(Tensor& t, int64_t row) {
  return t.row<std::byte>(0) + row * t.cols() * static_cast<int64_t>(size_of(t.dtype()));
}

size_t size_in_bytes(const Tensor& t) {
  return static_cast<size_t>(t.rows() * t.cols()) * size_of(t.dtype());
}

/// A tensor of the file as rows [first, ...) of `to`, which has its type.
void place(const TensorView& from, int64_t first, Tensor* to) {
  std::memcpy(bytes_of(*to, first), from.data, from.bytes);
}

void leave_out_activation_scales(Checkpoint& c, const std::string& module) {
  for (const char* suffix : {".input_scale", ".input_global_scale"}) {
    if (c.contains(module + suffix)) {
      c.ignore(module + suffix, "a scale of activations, which stay bf16");
    }
  }
}

void check_scales(const TensorView& scale) {
  const std::vector<float> values = to_f32(scale);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0) {
      throw InputError(scale.file, scale.name, "scales that are not negative",
                       fmt::format("{:g} at index {}", values[i], i));
    }
  }
}

/// The same of e4m3 scales, whose NaNs are found when the tensor is taken.
void check_block_scales(const TensorView& scale) {
  for (int64_t i = 0; i < scale.elements(); ++i) {
    const auto code = std::to_integer<unsigned>(scale.data[i]);
    if (code > 0x80) {
      throw InputError(scale.file, scale.name, "scales that are not negative",
                       fmt::format("0x{:02x} at index {}", code, i));
    }
  }
}

/// Empty where the file has none: the writer folded it into a norm.
std::vector<float> pre_quant_scale(const Checkpoint& c, const std::string& name, int64_t k) {
  const TensorView* t = c.find(name);
  if (t == nullptr) return {};
  if (t->shape != std::vector<int64_t>{k}) {
    throw InputError(t->file, t->name, fmt::format("[{}], a factor for each column of K", k),
                     describe(*t));
  }
  std::vector<float> factors = to_f32(*t);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (std::isfinite(factors[i]) && factors[i] > 0) continue;
    throw InputError(t->file, t->name, "finite positive factors",
                     fmt::format("{:g} at index {}", factors[i], i));
  }
  return factors;
}

}  // namespace

FloatNames float_names(const QuantConfig& quant, std::string_view module,
                       const Checkpoint& checkpoint) {
  const QuantMethod method = quant.method_of(module);
  if (method == QuantMethod::kNone) return {".weight"};
  if (method == QuantMethod::kCompressedTensorsNvfp4) {
    return {".weight_packed", ".weight_scale", ".weight_global_scale"};
  }
  if (is_fp4(method)) {
    return {".weight", ".weight_scale", ".weight_scale_2",
            quant.pre_quant_scale_of(module) ? ".pre_quant_scale" : nullptr};
  }
  const bool by_block = quant.fp8_scheme_of(module).scales == Fp8Scheme::Scales::kBlock;
  if (!by_block) return {".weight", ".weight_scale"};
  const std::string name(module);
  const TensorView* scale = checkpoint.find(name + ".weight_scale");
  const TensorView* inverse = checkpoint.find(name + ".weight_scale_inv");
  if (scale != nullptr && inverse != nullptr) {
    throw InputError(scale->file, scale->name, "one tensor of scales for each module",
                     inverse->name + " as well", "two names of the same thing");
  }
  // Where there is neither, the one that the writer would have written is missing.
  const bool is_inverse = inverse != nullptr || (scale == nullptr && method == QuantMethod::kFp8);
  return {".weight", is_inverse ? ".weight_scale_inv" : ".weight_scale"};
}

Fp8Form fp8_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                    const Checkpoint& checkpoint) {
  using Scales = Fp8Scheme::Scales;
  const FloatNames names = float_names(quant, module, checkpoint);
  const Fp8Scheme scheme = quant.fp8_scheme_of(module);
  require_matrix(need(checkpoint, module + names.codes), FileDType::kF8E4M3, n, k);
  const TensorView& scale = need(checkpoint, module + names.scale);
  Fp8Form form{.scale = scale_type(scale)};
  std::string expected;
  bool fits = false;
  if (scheme.scales == Scales::kBlock) {
    form.block_n = scheme.block_n;
    form.block_k = scheme.block_k;
    const int64_t rows = blocks(n, form.block_n), cols = blocks(k, form.block_k);
    // ModelOpt's own block-wise files keep the axes of the blocks.
    const bool keeps_axes = scale.shape == std::vector<int64_t>{rows, 1, cols, 1};
    fits = scale.shape == std::vector<int64_t>{rows, cols} ||
           (keeps_axes && is_modelopt(quant.method()));
    expected = fmt::format("[{}, {}], one for each block of {} x {}", rows, cols, form.block_n,
                           form.block_k);
  } else {
    const bool by_row =
        scale.shape == std::vector<int64_t>{n} || scale.shape == std::vector<int64_t>{n, 1};
    const bool one = is_scalar(scale);
    fits =
        (one && scheme.scales != Scales::kChannel) || (by_row && scheme.scales != Scales::kTensor);
    if (!one) form.block_n = 1;
    if (scheme.scales != Scales::kChannel) expected = "[] or [1]";
    if (scheme.scales != Scales::kTensor) {
      expected += fmt::format("{}[{}, 1] or [{}]", expected.empty() ? "" : ", or ", n, n);
    }
  }
  if (!fits) {
    throw InputError(scale.file, scale.name, expected, describe(scale),
                     "config.json and the tensor disagree");
  }
  return form;
}

Fp4Form fp4_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                    const Checkpoint& checkpoint) {
  const FloatNames names = float_names(quant, module, checkpoint);
  require_matrix(need(checkpoint, module + names.codes), FileDType::kU8, n, blocks(k, 2));
  require_matrix(need(checkpoint, module + names.scale), FileDType::kF8E4M3, n,
                 blocks(k, kNvfp4Block));
  const TensorView& global = need(checkpoint, module + names.global);
  if (!is_scalar(global) || global.dtype != FileDType::kF32) {
    throw InputError(global.file, global.name, "F32 [] or [1]", describe(global));
  }
  Fp4Form form;
  form.global = to_f32(global).front();
  const bool divides = quant.method_of(module) == QuantMethod::kCompressedTensorsNvfp4;
  form.global_is = divides ? Fp4Global::kDivisor : Fp4Global::kMultiplier;
  const bool usable = std::isfinite(form.global) && form.global > 0 &&
                      (!divides || std::isfinite(1.0f / form.global));
  if (!usable) {
    throw InputError(global.file, global.name, "a finite positive scale", value_text(global, 0));
  }
  if (names.pre_quant_scale != nullptr) {
    form.pre_quant_scale = pre_quant_scale(checkpoint, module + names.pre_quant_scale, k);
  }
  return form;
}

std::string describe(const Fp8Form& form) {
  std::string grid = fmt::format("{} x {} blocks", form.block_n, form.block_k);
  if (form.block_n == 1) grid = fmt::format("a scale per row and {} columns", form.block_k);
  if (form.block_k == -1) grid = form.block_n == 1 ? "a scale per row" : "one scale";
  return fmt::format("fp8 e4m3, {}, {} scales", grid, to_string(form.scale));
}

std::string describe(const Fp4Form& form) {
  return fmt::format("nvfp4, e4m3 scales of 16 columns, global scale {:g} {}{}", form.global,
                     form.global_is == Fp4Global::kDivisor ? "divides" : "multiplies",
                     form.pre_quant_scale.empty() ? "" : ", pre_quant_scale on the input");
}

std::string apart_because(const Fp8Form& before, int64_t n, const Fp8Form& next) {
  if (!(before == next)) return describe(next);
  if (before.block_n < 0) return "of a scale of its own";
  if (n % before.block_n != 0) {
    return fmt::format("behind {} rows, not whole blocks of {}", n, before.block_n);
  }
  return {};
}

std::string apart_because(const Fp4Form& before, const Fp4Form& next) {
  if (before.pre_quant_scale != next.pre_quant_scale) return "of a pre_quant_scale of its own";
  return before == next ? std::string() : describe(next);
}

HostFp8 take_fp8(Checkpoint& checkpoint, const QuantConfig& quant,
                 const std::vector<ModuleRef>& parts, int64_t k, const Fp8Form& form,
                 uint64_t* file_bytes) {
  HostFp8 host;
  host.form = form;
  host.k = k;
  for (const ModuleRef& part : parts) host.n += part.n;
  const int64_t groups = blocks(k, form.block_k);
  host.codes.resize(DType::kE4M3, host.n, k);
  host.scale.resize(form.scale, blocks(host.n, form.block_n), groups);
  int64_t row = 0, scale_row = 0;
  for (const ModuleRef& part : parts) {
    const FloatNames names = float_names(quant, part.name, checkpoint);
    const TensorView codes = checkpoint.get(part.name + names.codes);
    const TensorView scale = checkpoint.get(part.name + names.scale, Content::kScales);
    check_scales(scale);
    place(codes, row, &host.codes);
    place(scale, scale_row, &host.scale);
    *file_bytes += codes.bytes + scale.bytes;
    leave_out_activation_scales(checkpoint, part.name);
    row += part.n;
    scale_row += blocks(part.n, form.block_n);
  }
  host.row_scale.resize(form.scale, host.n, groups);
  const size_t bytes = static_cast<size_t>(groups) * size_of(form.scale);
  for (int64_t r = 0; r < host.n; ++r) {
    std::memcpy(bytes_of(host.row_scale, r),
                bytes_of(host.scale, form.block_n < 0 ? 0 : r / form.block_n), bytes);
  }
  return host;
}

HostFp4 take_fp4(Checkpoint& checkpoint, const QuantConfig& quant,
                 const std::vector<ModuleRef>& parts, int64_t k, const Fp4Form& form,
                 uint64_t* file_bytes) {
  HostFp4 host;
  host.form = form;
  host.k = k;
  for (const ModuleRef& part : parts) host.n += part.n;
  host.codes.resize(DType::kU8, host.n, blocks(k, 2));
  host.scale.resize(DType::kE4M3, host.n, blocks(k, kNvfp4Block));
  int64_t row = 0;
  for (const ModuleRef& part : parts) {
    const FloatNames names = float_names(quant, part.name, checkpoint);
    for (const auto& [suffix, to] :
         {std::pair{names.codes, &host.codes}, std::pair{names.scale, &host.scale}}) {
      const Content content = to == &host.codes ? Content::kNumbers : Content::kScales;
      const TensorView t = checkpoint.get(part.name + suffix, content);
      if (content == Content::kScales) check_block_scales(t);
      place(t, row, to);
      *file_bytes += t.bytes;
    }
    *file_bytes += checkpoint.get(part.name + names.global).bytes;
    if (!form.pre_quant_scale.empty()) {
      *file_bytes += checkpoint.get(part.name + names.pre_quant_scale).bytes;
    }
    leave_out_activation_scales(checkpoint, part.name);
    row += part.n;
  }
  return host;
}

Fp8Weights HostFp8::rows(int64_t first, int64_t count) const {
  return {.codes = rows_of(codes.view(), first, count),
          .scale = rows_of(row_scale.view(), first, count)};
}

Fp4Weights HostFp4::rows(int64_t first, int64_t count) const {
  Fp4Weights w;
  w.codes = rows_of(codes.view(), first, count);
  w.scale = rows_of(scale.view(), first, count);
  w.global = vector_view(&form.global, 1);
  w.global_is = form.global_is;
  return w;
}

size_t HostFp8::bytes() const {
  return size_in_bytes(codes) + size_in_bytes(scale);
}
size_t HostFp4::bytes() const {
  return size_in_bytes(codes) + size_in_bytes(scale) + sizeof(form.global);
}

}  // namespace quern::smoke
