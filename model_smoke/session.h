#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/generation_config.h"
#include "model_smoke/model_dir.h"
#include "model_smoke/options.h"
#include "model_smoke/qwen3_5.h"
#include "quern/context.h"
#include "quern/thread_pool.h"

namespace quern::smoke {

/// Context::from_environment, with a variable it does not understand as an InputError naming it.
Context context_from_environment(const ContextOptions& base);

/// Threads and context as the switches and the environment ask for. Throws InputError where the
/// level cannot be had, naming the stage of detection that failed.
class Runtime {
 public:
  explicit Runtime(const CommonOptions& options);
  const Context& context() const noexcept { return *context_; }
  int threads() const noexcept { return pool_->size(); }

 private:
  std::unique_ptr<PersistentPool> pool_;
  std::unique_ptr<Context> context_;
};

/// A loaded model and what it runs on.
class Session {
 public:
  /// kCompare keeps every weight a second time, as the reference takes it; kInspect plans and packs
  /// every op and lets it go, also where there is no kernel: such a model cannot run.
  enum class Purpose : uint8_t { kRun, kCompare, kInspect };

  explicit Session(const CommonOptions& options, Purpose purpose = Purpose::kRun);

  const ModelDir& dir() const noexcept { return dir_; }
  const ModelConfig& config() const noexcept { return config_; }
  const Runtime& runtime() const noexcept { return runtime_; }
  Qwen3_5& model() noexcept { return *model_; }
  /// Tensors that were left out, with the reasons.
  const std::vector<Checkpoint::Ignored>& ignored() const noexcept { return ignored_; }
  double load_seconds() const noexcept { return load_seconds_; }
  double pack_seconds() const noexcept { return pack_seconds_; }

  /// "jit (act int8), isa avx512, 2 threads"; isa: the families of the kernels in the plans.
  std::string describe() const;
  /// Kernels and how many projections use each, one a line: "19 x int8_gemm...".
  std::string kernels_used() const;

 private:
  Runtime runtime_;
  ModelDir dir_;
  ModelConfig config_;
  std::unique_ptr<Qwen3_5> model_;
  std::vector<Checkpoint::Ignored> ignored_;
  double load_seconds_ = 0, pack_seconds_ = 0;
};

/// Seconds since some fixed moment.
double now_seconds();

}  // namespace quern::smoke
