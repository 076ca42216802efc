#include "jit/code_registry.h"

#include <exception>
#include <utility>

#include "jit/code_dump.h"

namespace quern::jit {

CodeRegistry::CodeRegistry(const CodeRegistryOptions& options) : on_error_(options.on_error) {
  if (!options.dump_dir.empty()) add(std::make_shared<CodeDump>(options.dump_dir));
}

void CodeRegistry::add(std::shared_ptr<CodeListener> listener) {
  listeners_.push_back(std::move(listener));
}

void CodeRegistry::published(const GeneratedCode& code, const Kernel& kernel) noexcept {
  for (const std::shared_ptr<CodeListener>& listener : listeners_) {
    try {
      listener->published(code, kernel);
    } catch (const std::exception& e) {
      report_once(e.what());
    } catch (...) {
      report_once("a listener for generated code failed");
    }
  }
}

void CodeRegistry::report_once(const char* what) noexcept {
  if (reported_.exchange(true, std::memory_order_relaxed) || !on_error_) return;
  try {
    on_error_(what);
  } catch (...) {  // the reporter failed too; nobody is left to tell
  }
}

}  // namespace quern::jit
