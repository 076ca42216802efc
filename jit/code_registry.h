#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/kernel.h"

namespace quern::jit {

/// Is told of every kernel once, after its code can be executed and before the first caller gets
/// it. The place for whatever makes generated code visible to people: dumps now, perf map, jitdump
/// and the GDB interface as further listeners. `published` is called from several threads at once.
class CodeListener {
 public:
  virtual ~CodeListener() = default;
  virtual void published(const GeneratedCode& code, const Kernel& kernel) = 0;
};

struct CodeRegistryOptions {
  std::string dump_dir;  ///< existing directory for <name>.bin and <name>.json; empty: no dumps
  /// Gets one line for the first listener or dump that fails; later failures are silent. May be
  /// empty.
  std::function<void(const std::string& line)> on_error;
};

/// Passes published kernels to its listeners. Never makes a kernel fail: what goes wrong in a
/// listener is reported through on_error and forgotten.
class CodeRegistry {
 public:
  CodeRegistry() = default;
  explicit CodeRegistry(const CodeRegistryOptions& options);

  /// Before the registry is in use; not synchronised with published().
  void add(std::shared_ptr<CodeListener> listener);

  void published(const GeneratedCode& code, const Kernel& kernel) noexcept;

 private:
  void report_once(const char* what) noexcept;

  std::vector<std::shared_ptr<CodeListener>> listeners_;
  std::function<void(const std::string&)> on_error_;
  std::atomic<bool> reported_{false};
};

}  // namespace quern::jit
