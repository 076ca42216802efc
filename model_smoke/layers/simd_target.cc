#include "model_smoke/layers/simd_target.h"

#include "model_smoke/layers/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model_smoke/layers/simd_target.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which compiles the rest of this file once per target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

const char* TargetOfThisCopy() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quern::smoke {

HWY_EXPORT(TargetOfThisCopy);

std::string layer_kernel_name(LayerImpl impl) {
  if (impl == LayerImpl::kScalar) return "scalar";
  return std::string("Highway ") + HWY_DYNAMIC_DISPATCH(TargetOfThisCopy)();
}

}  // namespace quern::smoke
#endif  // HWY_ONCE
