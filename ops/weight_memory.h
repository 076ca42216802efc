#pragma once

#include <cstddef>
#include <memory>

namespace quern::inline v0 {

/// Memory for packed weights, at least 64-byte aligned; null where there is none. Weights are read
/// once a token from end to end, so that above a few MiB the page size decides how fast: in a
/// virtual machine on Granite Rapids two threads read 27 GB/s through 4 KiB pages and 35 GB/s
/// through 2 MiB ones. Large blocks are therefore aligned for huge pages and ask for them; where
/// the system does not grant any, they are ordinary memory. The last huge page is whole where that
/// adds at most half of `bytes`.
std::shared_ptr<std::byte> allocate_weight_memory(size_t bytes) noexcept;

}  // namespace quern::inline v0
