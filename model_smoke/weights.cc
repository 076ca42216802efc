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

}  // namespace

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
    const TensorView stored = checkpoint_.get(module.name + ".weight_scale", Content::kScales);
    to.file_bytes += stored.bytes;
    const std::vector<float> scale = to_f32(stored);
    if (static_cast<int64_t>(scale.size()) != module.n) {
      throw InputError(checkpoint_.source(), module.name + ".weight_scale",
                       std::to_string(module.n) + " scales, one a row",
                       std::to_string(scale.size()));
    }
    to.scale.insert(to.scale.end(), scale.begin(), scale.end());
  }
  append_bias(module, bias, to);
}

void WeightLoader::append_bias(const ModuleRef& module, bool bias, HostWeights& to) {
  if (bias) {
    const TensorView stored = checkpoint_.get(module.name + ".bias", {module.n});
    to.file_bytes += stored.bytes;
    const std::vector<float> b = to_f32(stored);
    to.bias.insert(to.bias.end(), b.begin(), b.end());
    return;
  }
  // GPTQ writers give every layer a bias, of zeros where the model has none.
  const TensorView* stored = checkpoint_.find(module.name + ".bias");
  if (to.format != ModuleFormat::kInt4 || stored == nullptr) return;
  const bool zeros = std::all_of(stored->data, stored->data + stored->bytes,
                                 [](std::byte b) { return b == std::byte{0}; });
  if (zeros) checkpoint_.ignore(module.name + ".bias", "a bias of zeros, which the model has not");
}

size_t HostWeights::bytes() const noexcept {
  if (int4) return int4->bytes();
  if (fp8) return fp8->bytes();
  if (fp4) return fp4->bytes();
  return static_cast<size_t>(n() * k()) * size_of(values.dtype());
}

std::string WeightLoader::stored_as(const ModuleRef& module, int64_t k) const {
  switch (quant_.format_of(module.name, checkpoint_)) {
    case ModuleFormat::kInt4:
      return describe(int4_form_of(quant_, module.name, module.n, k, checkpoint_));
    case ModuleFormat::kFp8:
      return describe(fp8_form_of(quant_, module.name, module.n, k, checkpoint_));
    case ModuleFormat::kFp4:
      return describe(fp4_form_of(quant_, module.name, module.n, k, checkpoint_));
    case ModuleFormat::kPlain:
    case ModuleFormat::kInt8:
      break;
  }
  std::string text = to_string(checkpoint_.find(module.name + ".weight")->dtype);
  if (const TensorView* scale = checkpoint_.find(module.name + ".weight_scale")) {
    text += std::string(", ") + to_string(scale->dtype) + " scale per row";
  }
  return text;
}

std::string WeightLoader::joined_text(const std::vector<ModuleRef>& modules, size_t first,
                                      size_t last, int64_t k) const {
  if (modules.size() == 1) return "alone: no other module reads its input";
  if (last - first == modules.size()) return "one matrix: one input, one format";
  std::string text = last - first > 1 ? "one matrix: one format" : "apart";
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i >= first && i < last) continue;
    const std::string why = i < first ? apart_text(modules[i], modules[first], k)
                                      : apart_text(modules[last - 1], modules[i], k);
    text += "; " + modules[i].name + " is " + (why.empty() ? "no neighbour of one format" : why);
  }
  return text;
}

std::string WeightLoader::apart_text(const ModuleRef& before, const ModuleRef& next,
                                     int64_t k) const {
  const ModuleFormat format = quant_.format_of(before.name, checkpoint_);
  if (quant_.format_of(next.name, checkpoint_) != format) return stored_as(next, k);
  if (format == ModuleFormat::kInt4) {
    const std::string other =
        difference(int4_form_of(quant_, before.name, before.n, k, checkpoint_),
                   int4_form_of(quant_, next.name, next.n, k, checkpoint_));
    if (!other.empty()) return other;
    // Words of eight columns cannot be cut.
    if (before.n % 8 != 0)
      return "behind " + std::to_string(before.n) + " columns, not whole words";
    return {};
  }
  if (format == ModuleFormat::kFp8) {
    return apart_because(fp8_form_of(quant_, before.name, before.n, k, checkpoint_), before.n,
                         fp8_form_of(quant_, next.name, next.n, k, checkpoint_));
  }
  if (format == ModuleFormat::kFp4) {
    return apart_because(fp4_form_of(quant_, before.name, before.n, k, checkpoint_),
                         fp4_form_of(quant_, next.name, next.n, k, checkpoint_));
  }
  const DType type = host_dtype(*checkpoint_.find(before.name + ".weight"));
  const bool same = host_dtype(*checkpoint_.find(next.name + ".weight")) == type;
  return same ? std::string() : stored_as(next, k);
}

HostWeights WeightLoader::stacked_packed(const std::vector<ModuleRef>& modules, ModuleFormat format,
                                         int64_t k, bool bias) {
  HostWeights host;
  host.format = format;
  const std::string& name = modules.front().name;
  const int64_t n = modules.front().n;
  uint64_t* bytes = &host.file_bytes;
  if (format == ModuleFormat::kInt4) {
    std::vector<Int4Part> parts;
    for (const ModuleRef& m : modules) parts.push_back({m.name, m.n});
    host.int4 = std::make_shared<HostInt4>(
        take_int4(checkpoint_, parts, k, int4_form_of(quant_, name, n, k, checkpoint_), bytes));
  } else if (format == ModuleFormat::kFp8) {
    host.fp8 = std::make_shared<HostFp8>(take_fp8(
        checkpoint_, quant_, modules, k, fp8_form_of(quant_, name, n, k, checkpoint_), bytes));
  } else {
    host.fp4 = std::make_shared<HostFp4>(take_fp4(
        checkpoint_, quant_, modules, k, fp4_form_of(quant_, name, n, k, checkpoint_), bytes));
  }
  for (const ModuleRef& m : modules) append_bias(m, bias, host);
  return host;
}

HostWeights WeightLoader::stacked_plain(const std::vector<ModuleRef>& modules, ModuleFormat format,
                                        int64_t k, bool bias) {
  HostWeights host;
  host.format = format;
  int64_t n = 0, row = 0;
  for (const ModuleRef& m : modules) n += m.n;
  host.values.resize(host_dtype(*checkpoint_.find(modules.front().name + ".weight")), n, k);
  for (const ModuleRef& m : modules) {
    append(m, k, bias, row, host);
    row += m.n;
  }
  return host;
}

std::string WeightLoader::decided(const std::vector<ModuleRef>& modules) const {
  std::vector<std::string> reasons;
  for (const ModuleRef& m : modules) {
    std::string reason = quant_.decide(m.name, checkpoint_).reason;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(std::move(reason));
    }
  }
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

std::vector<HostWeights> WeightLoader::stacked(const std::vector<ModuleRef>& modules, int64_t k,
                                               bool bias) {
  std::vector<HostWeights> out;
  for (size_t first = 0; first < modules.size();) {
    const ModuleFormat format = quant_.format_of(modules[first].name, checkpoint_);
    std::string name = modules[first].name;
    size_t last = first + 1;
    for (; last < modules.size(); ++last) {
      if (!apart_text(modules[last - 1], modules[last], k).empty()) break;
      name += "+" + modules[last].name;
    }
    const std::vector<ModuleRef> run(modules.begin() + static_cast<std::ptrdiff_t>(first),
                                     modules.begin() + static_cast<std::ptrdiff_t>(last));
    const std::string stored = stored_as(run.front(), k), why = decided(run);
    const std::string joined = joined_text(modules, first, last, k);
    const bool plain = format == ModuleFormat::kPlain || format == ModuleFormat::kInt8;
    HostWeights host =
        plain ? stacked_plain(run, format, k, bias) : stacked_packed(run, format, k, bias);
    host.name = std::move(name);
    host.stored = stored;
    host.joined = joined;
    host.decided = why;
    out.push_back(std::move(host));
    first = last;
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
