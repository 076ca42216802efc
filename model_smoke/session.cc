#include "model_smoke/session.h"

#include <chrono>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model_smoke/emulation.h"
#include "model_smoke/host_info.h"
#include "model_smoke/input_error.h"
#include "model_smoke/linear_ops.h"
#include "model_smoke/plan_text.h"

namespace quern::smoke {
namespace {

/// The first stage of the detection of `level` (or of a level below it) that failed.
const IsaStage* failed_stage(const IsaReport& report) {
  for (const IsaStage& stage : report.stages) {
    if (!stage.passed) return &stage;
  }
  return nullptr;
}

void require_level(const Context& ctx, IsaLevel level, const std::string& asked) {
  if (ctx.isa() >= level) return;
  const IsaReport& report = ctx.isa_report();
  const std::string got = std::string("the level ") + to_string(ctx.isa());
  if (ctx.options().max_isa < level) {
    throw InputError("--isa", asked, "an environment that allows this level",
                     got + ": QUERN_MAX_ISA caps it", "unset QUERN_MAX_ISA");
  }
  const IsaStage* stage = failed_stage(report);
  const std::string usable = ctx.isa() == IsaLevel::kNone
                                 ? "--backend reference runs on any CPU"
                                 : std::string("use --isa auto or --isa ") + to_string(ctx.isa());
  throw InputError("--isa", asked, "a machine whose detection passes every stage of this level",
                   got + (stage != nullptr ? "; \"" + stage->name + "\" failed: " + stage->detail
                                           : std::string()),
                   usable + "; quern-smoke doctor shows every stage");
}

/// What an op runs: the kernels of its plan, or what it calls itself where it has no plan.
std::vector<std::string> kernel_names(const LinearOp& op) {
  const std::vector<std::string> names = parse_plan_text(op.explain()).kernels;
  if (!names.empty()) return names;
  const std::string description = op.describe();
  return {description.substr(0, description.find(" n "))};
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Context context_from_environment(const ContextOptions& base) {
  Result<Context> context = Context::from_environment(base);
  if (context.ok()) return std::move(context).value();
  // "invalid argument: environment: NAME must be RULE, got 'VALUE'"
  const std::string text = context.status().message();
  const std::string prefix = "environment: ", middle = " must be ", end = ", got ";
  const size_t at = text.find(prefix), rule = text.find(middle), got = text.find(end, rule);
  if (at == std::string::npos || rule == std::string::npos || got == std::string::npos)
    throw std::runtime_error(text);
  const size_t name = at + prefix.size();
  throw InputError(text.substr(name, rule - name), "",
                   text.substr(rule + middle.size(), got - rule - middle.size()),
                   text.substr(got + end.size()),
                   "set in the environment; unset it for the default");
}

Runtime::Runtime(const CommonOptions& options) {
  if (options.emulate_amx) emulate_amx();
  const int threads = options.threads > 0 ? options.threads : usable_cpus(read_host_info());
  pool_ = take(PersistentPool::create(threads), "threads");
  const std::optional<IsaLevel> level = options.parsed_isa();
  ContextOptions base;
  base.pool = pool_.get();
  if (level) base.max_isa = *level;
  context_ = std::make_unique<Context>(context_from_environment(base));
  if (level && context_->options().max_isa > *level) {
    // QUERN_MAX_ISA is a cap as --isa is; of two caps the lower one holds.
    base = context_->options();
    base.max_isa = *level;
    context_ = std::make_unique<Context>(take(Context::create(base), "context"));
  }
  if (level) require_level(*context_, *level, options.isa);
}

Session::Session(const CommonOptions& options, Purpose purpose)
    : runtime_(options), dir_(options.model) {
  const double start = now_seconds();
  config_ = load_model_config(dir_);
  const QuantConfig quant = QuantConfig::load(dir_);
  Checkpoint checkpoint = Checkpoint::open(dir_);
  load_seconds_ = now_seconds() - start;
  PackingReport packing;
  model_ = std::make_unique<Qwen3_5>(Qwen3_5::load(runtime_.context(), config_, quant, checkpoint,
                                                   {.backend = options.parsed_backend(),
                                                    .act = options.parsed_act(),
                                                    .keep_source = purpose == Purpose::kCompare,
                                                    .inspect = purpose == Purpose::kInspect,
                                                    .packing = &packing,
                                                    .kv_cache = options.parsed_kv_cache()}));
  packing.finish();
  pack_seconds_ = now_seconds() - start - load_seconds_;
  for (const std::string& text : quant.unmatched_entries(checkpoint)) {
    fmt::print(stderr, "warning: {}\n", text);
  }
  for (const std::string& text : checkpoint.warnings()) fmt::print(stderr, "warning: {}\n", text);
  ignored_ = checkpoint.ignored();
  std::map<std::string, size_t> reasons;
  for (const Checkpoint::Ignored& tensor : ignored_) ++reasons[tensor.reason];
  for (const auto& [reason, count] : reasons) {
    fmt::print(stderr, "ignored {} tensors: {}\n", count, reason);
  }
}

std::string Session::describe() const {
  const ComputeMode mode = model_->mode();
  std::string text = fmt::format("{} (act {})", to_string(mode.backend), to_string(mode.act));
  if (mode.backend == Backend::kJit) {
    // What the plans chose, not what the machine could: an op may have no kernel of its level.
    std::vector<PlanText> plans;
    for (const LinearOp* op : model_->ops()) plans.push_back(parse_plan_text(op->explain()));
    text += ", isa " + families_of(plans);
  }
  if (mode.fp8_kv) text += ", FP8 KV cache";
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
