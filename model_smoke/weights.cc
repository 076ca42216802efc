#include "model_smoke/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

/// The type that holds a file's numbers exactly.
DType host_dtype(const TensorView& tensor) {
  switch (tensor.dtype) {
    case FileDType::kBF16:
      return DType::kBF16;
    case FileDType::kI8:
      return DType::kS8;
    default:
      return DType::kF32;
  }
}

/// "I8, F32 scale per row" or "BF16".
std::string stored_as(const Checkpoint& checkpoint, const std::string& module) {
  std::string text = to_string(checkpoint.find(module + ".weight")->dtype);
  if (const TensorView* scale = checkpoint.find(module + ".weight_scale")) {
    text += std::string(", ") + to_string(scale->dtype) + " scale per row";
  }
  return text;
}

}  // namespace

Tensor HostWeights::dequantized() const {
  Tensor out(DType::kF32, n(), k());
  for (int64_t r = 0; r < n(); ++r) {
    float* row = out.row<float>(r);
    for (int64_t c = 0; c < k(); ++c) {
      switch (values.dtype()) {
        case DType::kBF16:
          row[c] = values.row<bfloat16>(r)[c].to_float();
          break;
        case DType::kS8:
          row[c] = static_cast<float>(values.row<int8_t>(r)[c]) * scale[static_cast<size_t>(r)];
          break;
        default:
          row[c] = values.row<float>(r)[c];
      }
    }
  }
  return out;
}

void WeightLoader::append(const ModuleRef& module, int64_t k, bool bias, int64_t row,
                          HostWeights& to) {
  const TensorView weight = checkpoint_.get(module.name + ".weight", {module.n, k});
  to.file_bytes += weight.bytes;
  const size_t row_bytes = static_cast<size_t>(k) * size_of(to.values.dtype());
  std::byte* rows = to.values.row<std::byte>(0) + static_cast<size_t>(row) * row_bytes;
  if (to.values.dtype() == DType::kF32) {
    if (weight.dtype != FileDType::kBF16) ++wider_than_bf16_;
    const std::vector<float> numbers = to_f32(weight);
    std::memcpy(rows, numbers.data(), numbers.size() * sizeof(float));
  } else {
    std::memcpy(rows, weight.data, static_cast<size_t>(module.n) * row_bytes);
  }
  if (to.format == ModuleFormat::kInt8) {
    const TensorView stored = checkpoint_.get(module.name + ".weight_scale");
    to.file_bytes += stored.bytes;
    const std::vector<float> scale = to_f32(stored);
    if (static_cast<int64_t>(scale.size()) != module.n) {
      throw InputError(checkpoint_.source(), module.name + ".weight_scale",
                       std::to_string(module.n) + " scales, one a row",
                       std::to_string(scale.size()));
    }
    to.scale.insert(to.scale.end(), scale.begin(), scale.end());
  }
  if (bias) {
    const TensorView stored = checkpoint_.get(module.name + ".bias", {module.n});
    to.file_bytes += stored.bytes;
    const std::vector<float> b = to_f32(stored);
    to.bias.insert(to.bias.end(), b.begin(), b.end());
  }
}

std::string WeightLoader::joined_text(const std::vector<ModuleRef>& modules, size_t first,
                                      size_t last) const {
  if (modules.size() == 1) return "alone: no other module reads its input";
  if (last - first == modules.size()) return "one matrix: one input, one format";
  std::string text = last - first > 1 ? "one matrix: one format" : "apart";
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i >= first && i < last) continue;
    text += "; " + modules[i].name + " is " + stored_as(checkpoint_, modules[i].name);
  }
  return text;
}

std::vector<HostWeights> WeightLoader::stacked(const std::vector<ModuleRef>& modules, int64_t k,
                                               bool bias) {
  std::vector<HostWeights> out;
  for (size_t first = 0; first < modules.size();) {
    const ModuleFormat format = quant_.format_of(modules[first].name, checkpoint_);
    const TensorView* weight = checkpoint_.find(modules[first].name + ".weight");
    const DType dtype = host_dtype(*weight);
    int64_t n = 0;
    size_t last = first;
    std::string name;
    for (; last < modules.size(); ++last) {
      const ModuleRef& module = modules[last];
      if (last > first && (quant_.format_of(module.name, checkpoint_) != format ||
                           host_dtype(*checkpoint_.find(module.name + ".weight")) != dtype)) {
        break;
      }
      n += module.n;
      name += (name.empty() ? "" : "+") + module.name;
    }
    HostWeights host;
    host.name = std::move(name);
    host.format = format;
    host.stored = stored_as(checkpoint_, modules[first].name);
    host.joined = joined_text(modules, first, last);
    host.values.resize(dtype, n, k);
    int64_t row = 0;
    for (; first < last; ++first) {
      append(modules[first], k, bias, row, host);
      row += modules[first].n;
    }
    out.push_back(std::move(host));
  }
  return out;
}

HostWeights WeightLoader::single(const ModuleRef& module, int64_t k, bool bias) {
  return std::move(stacked({module}, k, bias).front());
}

HostWeights WeightLoader::embedding(const ModuleRef& module, int64_t k) {
  const TensorView* weight = checkpoint_.find(module.name + ".weight");
  HostWeights host;
  host.name = module.name;
  const bool is_bf16 = weight != nullptr && weight->dtype == FileDType::kBF16;
  host.values.resize(is_bf16 ? DType::kBF16 : DType::kF32, module.n, k);
  append(module, k, false, 0, host);
  host.stored = to_string(weight->dtype);
  parameters_.push_back(
      {module.name + ".weight", host.stored, {module.n, k}, host.file_bytes, "embed"});
  return host;
}

std::vector<float> WeightLoader::vector(const std::string& name,
                                        std::initializer_list<int64_t> shape, const char* op) {
  const TensorView tensor = checkpoint_.get(name, shape);
  parameters_.push_back({name, to_string(tensor.dtype), tensor.shape, tensor.bytes, op});
  return to_f32(tensor);
}

}  // namespace quern::smoke
