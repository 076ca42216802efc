#include <stdexcept>
#include <utility>

#include "model_smoke/linear_ops.h"

namespace quern::smoke {
namespace {

/// What is left of an op when its weights are gone.
class InspectedOp final : public LinearOp {
 public:
  InspectedOp(const LinearOp& op)
      : LinearOp(op.name()),
        description_(op.describe()),
        explanation_(op.explain()),
        layout_(op.layout()),
        bytes_(op.weight_bytes()) {}
  InspectedOp(std::string name, std::string description, std::string reason)
      : LinearOp(std::move(name)), description_(std::move(description)), layout_("not packed") {
    LinearInfo info;
    info.refused = std::move(reason);
    set_info(std::move(info));
  }

  size_t scratch_bytes(int64_t) const override { return 0; }
  void run(MatrixView, MutableMatrixView, Span<std::byte>) const override {
    throw std::logic_error(name() + ": was loaded to be looked at");
  }
  std::string describe() const override { return description_; }
  std::string explain() const override { return explanation_; }
  std::string layout() const override { return layout_; }
  size_t weight_bytes() const override { return bytes_; }

 private:
  std::string description_, explanation_, layout_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<LinearOp> make_inspected_op(const Context& ctx, LinearSource source) {
  const std::string name = source.name(), description = describe_jit_op(source);
  try {
    return std::make_unique<InspectedOp>(*make_backend_op(ctx, std::move(source)));
  } catch (const OpRefused& e) {
    return std::make_unique<InspectedOp>(name, description, e.reason);
  }
}

}  // namespace quern::smoke
