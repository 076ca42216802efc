#include "model_smoke/regex.h"

#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr size_t kMaxPatternBytes = 65536;
// Steps a match may take: a constant part for the pattern, and enough per byte of text for the
// backtracking of `\s*[\r\n]+` over one long run of spaces. 1e6 steps are a few milliseconds.
constexpr uint32_t kMatchStepsBase = 1'000'000;
constexpr uint64_t kMatchStepsPerByte = 64;
constexpr uint32_t kHeapKilobytes = 65536;
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 4 * 1024 * 1024;

// The White_Space property of Unicode, which is Oniguruma's \s. PCRE2's own \s also takes U+180E.
constexpr char kWhiteSpace[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Rewrites an Oniguruma pattern for PCRE2: \s and \S by the property, and refuses what the two
// read differently (nested classes and && in a class).
std::string from_oniguruma(std::string_view p, const std::string& file, const std::string& key) {
  std::string out;
  bool in_class = false;
  bool class_start = false;
  for (size_t i = 0; i < p.size(); ++i) {
    const char c = p[i];
    const bool first = std::exchange(class_start, false);
    if (c == '\\' && i + 1 < p.size()) {
      const char e = p[++i];
      if (e == 's') {
        out += in_class ? kWhiteSpace : std::string("[") + kWhiteSpace + "]";
      } else if (e == 'S' && !in_class) {
        out += std::string("[^") + kWhiteSpace + "]";
      } else {
        out += {c, e};
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_start = true;
    } else if (in_class && c == '^' && first) {
      class_start = true;  // a ']' right after "[^" is still a member
    } else if (in_class && c == ']' && !first) {
      in_class = false;
    } else if (in_class && (c == '[' || p.substr(i, 2) == "&&")) {
      const bool posix = p.substr(i, 2) == "[:" && p.find(":]", i + 2) != std::string_view::npos;
      if (!posix) {
        throw InputError(file, key, "a pattern without set operations in a class",
                         "\"" + std::string(p.substr(i, 2)) + "\" at byte " + std::to_string(i));
      }
      const size_t end = p.find(":]", i + 2) + 2;
      out += p.substr(i, end - i);
      i = end - 1;
      continue;
    }
    out += c;
  }
  return out;
}

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view s) {
  return reinterpret_cast<PCRE2_SPTR>(s.data());
}

}  // namespace

struct Regex::Impl {
  std::string file, key;
  pcre2_code* code = nullptr;
  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, Syntax syntax, std::string file, std::string key)
    : impl_(std::make_unique<Impl>()) {
  impl_->file = std::move(file);
  impl_->key = std::move(key);
  const auto fail = [&](std::string_view got) {
    throw InputError(impl_->file, impl_->key, "a valid regular expression", got);
  };
  if (pattern.size() > kMaxPatternBytes) fail("one of more than 65536 bytes");
  std::string text(pattern);
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  if (syntax == Syntax::kOniguruma) {
    text = from_oniguruma(pattern, impl_->file, impl_->key);
    options |= PCRE2_MULTILINE;
  }
  int error = 0;
  size_t offset = 0;
  impl_->code = pcre2_compile(units(text), text.size(), options, &error, &offset, nullptr);
  if (impl_->code == nullptr) fail(error_text(error) + " at byte " + std::to_string(offset));
  // Where executable memory is denied this fails and the interpreter takes over.
  (void)pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Scanner::State {
  const Regex::Impl* regex;
  std::string_view text;
  size_t at = 0;
  bool last_was_empty = false;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~State() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  // Position of a match at or after `at`; false when there is none.
  bool run(uint32_t options, size_t* begin, size_t* end) {
    options |= PCRE2_NO_UTF_CHECK;  // the caller's text is valid; checking again would be quadratic
    int rc = pcre2_match(regex->code, units(text), text.size(), at, options, match, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The interpreter keeps its stack on the heap, under the heap limit.
      rc = pcre2_match(regex->code, units(text), text.size(), at, options | PCRE2_NO_JIT, match,
                       context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) {
      throw InputError(regex->file, regex->key,
                       "a regular expression that matches in bounded time and memory",
                       error_text(rc), "on a text of " + std::to_string(text.size()) + " bytes");
    }
    const size_t* offsets = pcre2_get_ovector_pointer(match);
    *begin = offsets[0];
    *end = offsets[1];
    // \K can put the start of a match behind its end.
    if (*begin < at || *end < *begin) {
      throw InputError(regex->file, regex->key, "a match that moves forward", "one that does not");
    }
    return true;
  }
};

Regex::Scanner::Scanner(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->regex = regex.impl_.get();
  state_->match = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  state_->stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
  if (state_->match == nullptr || state_->context == nullptr || state_->stack == nullptr) {
    throw std::bad_alloc();
  }
  pcre2_set_heap_limit(state_->context, kHeapKilobytes);
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

void Regex::Scanner::start(std::string_view text) {
  state_->text = text.empty() ? std::string_view("") : text;  // PCRE2 refuses a null subject
  state_->at = 0;
  state_->last_was_empty = false;
  const uint64_t steps = kMatchStepsBase + kMatchStepsPerByte * text.size();
  pcre2_set_match_limit(state_->context,
                        steps > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(steps));
}

Regex::Scanner::~Scanner() = default;

bool Regex::Scanner::next(size_t* begin, size_t* end) {
  State& s = *state_;
  while (s.at <= s.text.size()) {
    // After an empty match, look for another one in the same place that is not empty.
    const uint32_t options = s.last_was_empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
    if (s.run(options, begin, end)) {
      s.at = *end;
      s.last_was_empty = *begin == *end;
      return true;
    }
    if (!s.last_was_empty) return false;
    // Nothing there: on by one character.
    s.last_was_empty = false;
    do {
      ++s.at;
    } while (s.at < s.text.size() && (static_cast<unsigned char>(s.text[s.at]) & 0xc0) == 0x80);
  }
  return false;
}

bool Regex::matches_start(std::string_view text) const {
  Scanner scanner(*this);
  scanner.start(text);
  size_t begin = 0;
  size_t end = 0;
  return scanner.state_->run(PCRE2_ANCHORED, &begin, &end);
}

}  // namespace quern::smoke
