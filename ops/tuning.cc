#include "quern/tuning.h"

namespace quern::inline v0 {

// Out of line: the home of the vtable.
TuningSource::~TuningSource() = default;

}  // namespace quern::inline v0
