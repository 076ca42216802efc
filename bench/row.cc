#include "bench/row.h"

#include <iterator>

namespace quern::bench {
namespace {

struct VerifiedName {
  Verified verified;
  const char* name;
};
constexpr VerifiedName kVerifiedNames[] = {{Verified::kNotAsked, "not asked"},
                                           {Verified::kEqual, "equal"},
                                           {Verified::kWithinBound, "within bound"},
                                           {Verified::kFailed, "failed"}};

}  // namespace

const char* to_string(Verified verified) {
  for (const VerifiedName& entry : kVerifiedNames) {
    if (entry.verified == verified) return entry.name;
  }
  return "?";
}

std::optional<Verified> verified_from(std::string_view text) {
  for (const VerifiedName& entry : kVerifiedNames) {
    if (text == entry.name) return entry.verified;
  }
  return std::nullopt;
}

}  // namespace quern::bench
