#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/kernel.h"

namespace quern::jit {

/// Is told of every kernel once, after its code can be executed and before the first caller gets
/// it. The place for whatever makes generated code visible to people: dumps, perf map, jitdump, the
/// GDB interface. `published` is called from several threads at once. What it returns lives as long
/// as the kernel's code and may be null.
class CodeListener {
 public:
  virtual ~CodeListener() = default;
  virtual KernelRecord published(const GeneratedCode& code, const Kernel& kernel) = 0;
};

struct CodeRegistryOptions {
  std::string dump_dir;     ///< existing directory for the files of CodeDump; empty: no dumps
  bool perf_map = false;    ///< see PerfMap
  std::string jitdump_dir;  ///< existing directory for jit-PID.dump (see JitDump); empty: none
  bool gdb = false;         ///< see GdbListener
  /// Gets one line for the first failure of each listener; later ones are silent. May be empty.
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

  /// The records to keep with the kernel; null ones are left out.
  std::vector<KernelRecord> published(const GeneratedCode& code, const Kernel& kernel) noexcept;

 private:
  struct Entry {
    explicit Entry(std::shared_ptr<CodeListener> l) : listener(std::move(l)) {}
    std::shared_ptr<CodeListener> listener;
    std::atomic<bool> reported{false};
  };
  void report_once(Entry& entry, const char* what) noexcept;

  std::vector<std::unique_ptr<Entry>> entries_;
  std::function<void(const std::string&)> on_error_;
};

}  // namespace quern::jit
