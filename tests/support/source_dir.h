#pragma once

#include <string>

namespace quern::test {

/// The source tree: where tests find checkpoints, goldens and scripts. A function in a file of its
/// own, because a path on the command line of the compiler keeps ccache from using what another
/// checkout has compiled.
std::string source_dir();

}  // namespace quern::test
