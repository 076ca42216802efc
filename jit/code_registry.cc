#include "jit/code_registry.h"

#include <exception>
#include <utility>

#include "jit/code_dump.h"
#include "jit/gdb_jit.h"
#include "jit/jitdump.h"
#include "jit/perf_map.h"

namespace quern::jit {

CodeRegistry::CodeRegistry(const CodeRegistryOptions& options) : on_error_(options.on_error) {
  if (!options.dump_dir.empty()) add(std::make_shared<CodeDump>(options.dump_dir));
  if (options.perf_map) add(std::make_shared<PerfMap>());
  if (!options.jitdump_dir.empty()) add(process_jitdump(options.jitdump_dir));
  if (options.gdb) add(std::make_shared<GdbListener>());
}

void CodeRegistry::add(std::shared_ptr<CodeListener> listener) {
  entries_.push_back(std::make_unique<Entry>(std::move(listener)));
}

std::vector<KernelRecord> CodeRegistry::published(const GeneratedCode& code,
                                                  const Kernel& kernel) noexcept {
  std::vector<KernelRecord> records;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    try {
      KernelRecord record = entry->listener->published(code, kernel);
      if (record != nullptr) records.push_back(std::move(record));
    } catch (const std::exception& e) {
      report_once(*entry, e.what());
    } catch (...) {
      report_once(*entry, "a listener for generated code failed");
    }
  }
  return records;
}

void CodeRegistry::report_once(Entry& entry, const char* what) noexcept {
  if (entry.reported.exchange(true, std::memory_order_relaxed) || !on_error_) return;
  try {
    on_error_(what);
  } catch (...) {  // the reporter failed too; nobody is left to tell
  }
}

}  // namespace quern::jit
