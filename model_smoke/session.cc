#include "model_smoke/session.h"

#include <chrono>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "model_smoke/host_info.h"
#include "model_smoke/input_error.h"
#include "model_smoke/linear_ops.h"

namespace quern::smoke {
namespace {

/// Why the machine does not have `level`: the first stage of its detection that failed.
std::string missing_stage(const IsaReport& report, IsaLevel level) {
  for (const IsaStage& stage : report.stages) {
    if (!stage.passed && stage.name.rfind(to_string(level), 0) == 0) {
      return stage.name + ": " + stage.detail;
    }
  }
  for (const IsaStage& stage : report.stages) {
    if (!stage.passed) return stage.name + ": " + stage.detail;
  }
  return "capped by QUERN_MAX_ISA";
}

void require_level(const Context& ctx, IsaLevel level, const std::string& asked) {
  if (ctx.isa() >= level) return;
  const bool machine_has_it = ctx.isa_report().level >= level;
  throw InputError("--isa", "", std::string(to_string(level)) + " on this machine",
                   asked + ", but " +
                       (machine_has_it ? std::string("the level is capped by QUERN_MAX_ISA")
                                       : missing_stage(ctx.isa_report(), level)),
                   "quern-smoke doctor shows every stage");
}

/// The kernel names in a plan's explanation.
std::vector<std::string> kernel_names(const LinearOp& op) {
  std::vector<std::string> names;
  std::istringstream text(op.explain());
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string word, name;
    if (words >> word >> name && word == "kernel") names.push_back(name);
  }
  if (names.empty()) {
    const std::string description = op.describe();
    names.push_back(description.substr(0, description.find(" n ")));
  }
  return names;
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Runtime::Runtime(const CommonOptions& options) {
  options.refuse_unavailable();
  const int threads = options.threads > 0 ? options.threads : usable_cpus(read_host_info());
  pool_ = take(PersistentPool::create(threads), "threads");
  ContextOptions base;
  base.pool = pool_.get();
  const std::optional<IsaLevel> level = options.parsed_isa();
  if (level) base.max_isa = *level;
  Result<Context> context = Context::from_environment(base);
  if (!context.ok()) {
    throw InputError("environment", "", "values quern knows", context.status().message());
  }
  context_ = std::make_unique<Context>(std::move(context).value());
  if (level) require_level(*context_, *level, options.isa);
}

Session::Session(const CommonOptions& options) : runtime_(options), dir_(options.model) {
  const double start = now_seconds();
  config_ = load_model_config(dir_);
  const QuantConfig quant = QuantConfig::load(dir_);
  Checkpoint checkpoint = Checkpoint::open(dir_);
  load_seconds_ = now_seconds() - start;
  model_ = std::make_unique<Qwen3_5>(Qwen3_5::load(runtime_.context(), config_, quant, checkpoint,
                                                   options.parsed_backend(), options.parsed_act()));
  pack_seconds_ = now_seconds() - start - load_seconds_;
  for (const std::string& text : quant.unmatched_entries(checkpoint)) {
    fmt::print(stderr, "warning: {}\n", text);
  }
  for (const std::string& text : checkpoint.warnings()) fmt::print(stderr, "warning: {}\n", text);
  uint64_t ignored_bytes = 0;
  std::map<std::string, size_t> reasons;
  for (const Checkpoint::Ignored& tensor : checkpoint.ignored()) {
    ignored_bytes += tensor.bytes;
    ++reasons[tensor.reason];
  }
  for (const auto& [reason, count] : reasons) {
    fmt::print(stderr, "ignored {} tensors: {}\n", count, reason);
  }
}

std::string Session::describe() const {
  const ComputeMode mode = model_->mode();
  std::string text = fmt::format("{} (act {})", to_string(mode.backend), to_string(mode.act));
  if (mode.backend == Backend::kJit) {
    text += fmt::format(", isa {}", to_string(runtime_.context().isa()));
  }
  return text +
         fmt::format(", {} thread{}", runtime_.threads(), runtime_.threads() == 1 ? "" : "s");
}

std::string Session::kernels_used() const {
  std::map<std::string, int> uses;
  for (const LinearOp* op : model_->ops()) {
    for (const std::string& name : kernel_names(*op)) ++uses[name];
  }
  std::string text;
  for (const auto& [name, count] : uses) text += fmt::format("  {:3} x {}\n", count, name);
  return text;
}

}  // namespace quern::smoke
