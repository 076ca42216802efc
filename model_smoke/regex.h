#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quern::smoke {

/// A regular expression out of a file, run by PCRE2 in UTF and UCP mode under limits: a pattern
/// that explodes gives an InputError, not a hang. Immutable and shareable between threads.
class Regex {
 public:
  enum class Syntax {
    kOniguruma,  ///< tokenizer.json: ^ and $ at every line, \s by the Unicode White_Space property
    kPython,     ///< `re` module
  };

  /// `file` and `key` are what messages name. Throws InputError for a pattern that does not compile
  /// or that uses class set operations, which PCRE2 10.42 would read as something else.
  Regex(std::string_view pattern, Syntax syntax, std::string file, std::string key);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Matches at the start of `text`, not necessarily to its end (Python's re.match).
  bool matches_start(std::string_view text) const;

  /// Walks over the matches of a text, left to right. For one thread; the regex outlives it.
  class Scanner {
   public:
    explicit Scanner(const Regex& regex);
    ~Scanner();
    Scanner(const Scanner&) = delete;
    Scanner& operator=(const Scanner&) = delete;
    /// Begins at the start of `text`, which must be valid UTF-8 and outlive the walk.
    void start(std::string_view text);
    /// The next match [*begin, *end); it may be empty. False when there is none.
    bool next(size_t* begin, size_t* end);

   private:
    friend class Regex;
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quern::smoke
