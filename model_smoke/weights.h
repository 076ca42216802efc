#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/float_module.h"
#include "model_smoke/int4_module.h"
#include "model_smoke/module_ref.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/tensor.h"

namespace quern::smoke {

/// A weight matrix [n, k] as the checkpoint stores it, in memory of our own: plain numbers (bf16,
/// or f32 where the file has F16 or F32), signed 8 bit codes with one scale per row, int4, e4m3 or
/// NVFP4.
struct HostWeights {
  std::string name;  ///< for messages: the modules joined by "+"
  ModuleFormat format = ModuleFormat::kPlain;
  Tensor values;                         ///< empty with kInt4, kFp8 and kFp4
  std::shared_ptr<const HostInt4> int4;  ///< kInt4: immutable, so copies share it
  std::shared_ptr<const HostFp8> fp8;    ///< kFp8
  std::shared_ptr<const HostFp4> fp4;    ///< kFp4
  std::vector<float> scale;              ///< kInt8: one per row, converted exactly
  std::vector<float> bias;               ///< empty: none
  std::string stored;                    ///< for people: "I8, F32 scale per row"
  std::string joined;                    ///< whether modules share this matrix, and why
  std::string decided;                   ///< why the format is what it is
  uint64_t file_bytes = 0;               ///< of its tensors, in the files

  int64_t n() const noexcept {
    return int4 ? int4->n : fp8 ? fp8->n : fp4 ? fp4->n : values.rows();
  }
  int64_t k() const noexcept {
    return int4 ? int4->k : fp8 ? fp8->k : fp4 ? fp4->k : values.cols();
  }
  /// Of the columns of K of the input; empty: none.
  std::vector<float> pre_quant_scale() const {
    return fp4 ? fp4->form.pre_quant_scale : std::vector<float>();
  }
  /// In memory, without biases.
  size_t bytes() const noexcept;
  VectorView scale_view() const noexcept {
    return vector_view(scale.data(), static_cast<int64_t>(scale.size()));
  }
  VectorView bias_view() const noexcept {
    return vector_view(bias.data(), static_cast<int64_t>(bias.size()));
  }
};

/// A tensor that is no matrix of a linear op, and the op that reads it.
struct Parameter {
  std::string name;
  std::string stored;  ///< "BF16"
  std::vector<int64_t> shape;
  uint64_t file_bytes = 0;
  std::string op;
};

/// Takes the tensors of linear modules out of a checkpoint, checking names and shapes.
class WeightLoader {
 public:
  WeightLoader(Checkpoint& checkpoint, const QuantConfig& quant)
      : checkpoint_(checkpoint), quant_(quant) {}

  /// Modules that read the same input, stacked into as few matrices as their formats allow:
  /// neighbours of one format become one matrix, rows in the order given.
  std::vector<HostWeights> stacked(const std::vector<ModuleRef>& modules, int64_t k, bool bias);
  HostWeights single(const ModuleRef& module, int64_t k, bool bias);
  /// An embedding: plain numbers whatever the quantization of linear modules.
  HostWeights embedding(const ModuleRef& module, int64_t k);

  /// A tensor of that shape as f32 (F32, BF16 or F16 in the file); `op` is what reads it.
  std::vector<float> vector(const std::string& name, std::initializer_list<int64_t> shape,
                            const char* op);

  /// What `vector` and `embedding` took.
  std::vector<Parameter> take_parameters() noexcept { return std::move(parameters_); }

  /// Matrices taken so far that the file holds in F16 or F32: a bf16 model rounds them.
  int64_t wider_than_bf16() const noexcept { return wider_than_bf16_; }

 private:
  /// Why modules [first, last) of `modules` became one matrix and the others did not.
  std::string joined_text(const std::vector<ModuleRef>& modules, size_t first, size_t last,
                          int64_t k) const;
  void append(const ModuleRef& module, int64_t k, bool bias, int64_t row, HostWeights& to);
  void append_bias(const ModuleRef& module, bool bias, HostWeights& to);
  /// Modules of a packed format: int4, fp8 or fp4.
  HostWeights stacked_packed(const std::vector<ModuleRef>& modules, ModuleFormat format, int64_t k,
                             bool bias);
  HostWeights stacked_plain(const std::vector<ModuleRef>& modules, ModuleFormat format, int64_t k,
                            bool bias);
  std::string decided(const std::vector<ModuleRef>& modules) const;
  /// How one module is stored, for people; "int4 gptq, ..." or "BF16".
  std::string stored_as(const ModuleRef& module, int64_t k) const;
  /// Why `next` cannot stand below the modules [first, ...) before it; empty: it can.
  std::string apart_text(const ModuleRef& before, const ModuleRef& next, int64_t k) const;

  Checkpoint& checkpoint_;
  const QuantConfig& quant_;
  int64_t wider_than_bf16_ = 0;
  std::vector<Parameter> parameters_;
};

}  // namespace quern::smoke
