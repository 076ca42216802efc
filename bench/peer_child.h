#pragma once

#include <string>

namespace quern::bench {

/// Whether this build has a peer, and which version of it was found.
bool onednn_built();

/// The child's side of peer_process.h: answers on standard output until standard input ends;
/// returns the exit code. Anything that libraries print goes to standard error.
int run_onednn_child();

}  // namespace quern::bench
