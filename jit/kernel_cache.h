#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "jit/code_memory.h"
#include "jit/code_registry.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

struct KernelCacheStats {
  uint64_t hits = 0;         ///< calls answered by somebody else's generation, failures included
  uint64_t kernels = 0;      ///< kernels generated
  uint64_t failures = 0;     ///< generations that failed
  uint64_t code_bytes = 0;   ///< of all kernels generated
  uint64_t generate_ns = 0;  ///< spent generating and publishing, summed over threads
};

/// Name -> kernel. Each name is generated exactly once, outside every lock, however many threads
/// ask for it together; the others wait for the one that generates. Kernels live as long as the
/// cache, or longer where a plan holds them. Thread-safe. A forked child starts with an empty
/// cache, whatever threads of its parent were doing, and generates what it asks for again; kernels
/// that its plans hold stay.
class KernelCache {
 public:
  using Make = std::function<Result<GeneratedCode>()>;

  /// `registry` is not owned, must outlive the cache and may be null.
  explicit KernelCache(CodeMemory memory, CodeRegistry* registry = nullptr);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The kernel of that name; `make` is called only when nobody has asked for it before. It must
  /// return code of the same name. A failure, and an exception of `make` likewise (kInternal), is
  /// kept and returned to every later caller. Only kOutOfMemory is not: it goes to those who
  /// waited, and the next call tries again. `make` may ask this cache for other names, but not for
  /// its own: that is kInternal, where waiting would be for ever.
  Result<KernelHandle> get(const std::string& name, const Make& make) noexcept;

  KernelCacheStats stats() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quern::jit
