#include "tests/model_smoke/damage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke::test {
namespace {

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::string damage(std::string s, Rng* rng, size_t from) {
  static const char* const kTokens[] = {"null",     "-1",      "1e99",      "18446744073709551616",
                                        "\"",       "{",       "}",         "[",
                                        "]",        ",",       ":",         "9007199254740993",
                                        "true",     "\\u0000", "\xff",      "\xc3",
                                        "[[[[[[[[", "0.5",     "\"dtype\"", " "};
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>((*rng)() % n); };
  const size_t changes = 1 + below(3);
  for (size_t i = 0; i < changes && s.size() > from; ++i) {
    const size_t at = from + below(s.size() - from);
    switch (below(6)) {
      case 0:
        s[at] = static_cast<char>((*rng)() & 255);
        break;
      case 1:
        s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 2:
        s.erase(at, 1 + below(16));
        break;
      case 3:
        s.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 4:
        s.insert(at, s.substr(from + below(s.size() - from), below(64)));
        break;
      default:
        s.resize(at);
        break;
    }
  }
  return s;
}

void damage_tree(Json* root, Rng* rng) {
  static const Json kValues[] = {nullptr,
                                 true,
                                 0,
                                 -1,
                                 1,
                                 7,
                                 64,
                                 uint64_t{1} << 31,
                                 uint64_t{1} << 63,
                                 1e99,
                                 0.3,
                                 "8",
                                 "",
                                 "Sequence",
                                 Json::array(),
                                 Json::object(),
                                 Json::array({0, 8}),
                                 Json::array({"a", "b"})};
  Json* at = root;
  for (int depth = 0; depth < 8 && at->is_structured() && !at->empty(); ++depth) {
    if (depth > 0 && (*rng)() % 3 == 0) break;
    const auto step = static_cast<std::ptrdiff_t>((*rng)() % at->size());
    auto it = at->begin();
    std::advance(it, step);
    if ((*rng)() % 12 == 0) {
      at->erase(it);
      return;
    }
    at = &*it;
  }
  *at = kValues[(*rng)() % std::size(kValues)];
}

void run_cases(const char* what, uint64_t cases, const std::function<void(Rng*)>& load) {
  const uint64_t first = number_from("QUERN_TEST_SEED", 20260101);
  cases = std::min(number_from("QUERN_TEST_CASES", cases), uint64_t{100'000});
  uint64_t loaded = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    Rng rng(first + i);
    try {
      load(&rng);
      ++loaded;
    } catch (const InputError& e) {
      EXPECT_FALSE(std::string(e.what()).empty());
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << " threw " << e.what() << "; again with QUERN_TEST_SEED=" << first + i
                    << " QUERN_TEST_CASES=1";
    }
  }
  std::printf("%s: %llu cases from seed %llu, %llu loaded\n", what,
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(loaded));
  EXPECT_LT(loaded, cases) << "no damage was noticed";
}

}  // namespace quern::smoke::test
