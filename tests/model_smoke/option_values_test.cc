// Values of switches: what is no value is an error that names switch, rule and value; nothing is
// clamped, cut off or guessed.
#include "model_smoke/option_values.h"

#include <gtest/gtest.h>

#include <functional>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/smoke_binary.h"

namespace quern::smoke {
namespace {

/// The error of f, or nothing.
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(OptionValues, IntegersAreDigitsInRange) {
  EXPECT_EQ(parse_integer("-n", "1", 1, 9), 1u);
  EXPECT_EQ(parse_integer("-n", "007", 1, 9), 7u);
  EXPECT_EQ(parse_integer("--seed", "18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
  for (const char* text : {"", "0", "10", "-1", "-0", "+1", " 1", "1 ", "1.0", "1e0", "0x1", "1_0",
                           "one", "18446744073709551617", "99999999999999999999999"}) {
    EXPECT_EQ(message_of([&] { parse_integer("-n", text, 1, 9); }),
              "-n: expected an integer from 1 to 9, got \"" + std::string(text) + "\"");
  }
  // One past the largest: wraps to 0 in a careless reader.
  EXPECT_NE(message_of([] { parse_integer("-n", "18446744073709551616", 0, UINT64_MAX); }), "");
}

TEST(OptionValues, NumbersAreFiniteAndInRange) {
  EXPECT_EQ(parse_number("--temp", "0", 0, 100), 0.0);
  EXPECT_EQ(parse_number("--temp", "2.5e1", 0, 100), 25.0);
  EXPECT_EQ(parse_number("--temp", ".5", 0, 100), 0.5);
  for (const char* text : {"", "nan", "NaN", "-nan", "inf", "infinity", "-1", "100.1", "1e999",
                           " 1", "1 ", "1,5", "0x1p3", "+1", "hot"}) {
    EXPECT_EQ(message_of([&] { parse_number("--temp", text, 0, 100); }),
              "--temp: expected a number from 0 to 100, got \"" + std::string(text) + "\"");
  }
}

TEST(OptionValues, IdsAreDigitsJoinedByCommas) {
  EXPECT_EQ(parse_ids("--ids", "7"), (std::vector<int32_t>{7}));
  EXPECT_EQ(parse_ids("--ids", "0,2147483647,3"), (std::vector<int32_t>{0, 2147483647, 3}));
  const struct {
    const char *text, *part;
  } bad[] = {{"", "part 1"},
             {",", "part 1"},
             {",1", "part 1"},
             {"1,", "part 2"},
             {"1,,2", "part 2"},
             {"1, 2", "part 2"},
             {" 1", "part 1"},
             {"1 2", "part 1"},
             {"+1", "part 1"},
             {"-1", "part 1"},
             {"1,-0", "part 2"},
             {"1,2,3.0", "part 3"},
             {"1;2", "part 1"},
             {"0x10", "part 1"},
             {"2147483648", "part 1"},
             {"4294967296", "part 1"},
             {"1,18446744073709551617", "part 2"}};
  for (const auto& [text, part] : bad) {
    const std::string message = message_of([&] { parse_ids("--ids", text); });
    EXPECT_NE(message.find("--ids: " + std::string(part) + ": expected token ids"),
              std::string::npos)
        << "\"" << text << "\": " << message;
  }
}

/// Every numeric switch of every command, through the program.
TEST(OptionValues, EveryNumericSwitchRefusesWhatIsNoValue) {
  const std::string generate = "generate " + test::docs_model() + " -p x";
  // The vocabulary is known once the model is loaded, on any machine.
  const std::string ids = "generate " + test::docs_model() + " --backend reference";
  const std::string verify = "verify " + test::docs_model();
  const struct {
    std::string command, option;
    std::vector<const char*> values;
  } cases[] = {{generate, "--temp", {"nan", "inf", "-0.1", "101", "1e999", "x"}},
               {generate, "--top-p", {"nan", "-0.1", "1.01", "0,5"}},
               {generate, "--top-k", {"-1", "1.5", "1073741825", "nan"}},
               {generate, "--seed", {"-1", "18446744073709551616", "1e3", "0x1"}},
               {generate, "-n", {"0", "-1", "16777217", "1e3", "9223372036854775808"}},
               {generate, "--threads", {"0", "-1", "1025", "1.0", "4294967297"}},
               {verify, "--threads", {"0", "two"}},
               {ids, "--ids", {"1,,2", "1024", "-1", "+1", "'1, 2'", "4294967297"}}};
  for (const auto& c : cases) {
    for (const char* value : c.values) {
      const test::Outcome o = test::smoke(c.command + " " + c.option + " " + value);
      EXPECT_EQ(o.code, 2) << c.option << " " << value;
      EXPECT_TRUE(o.out.empty()) << o.out;
      EXPECT_EQ(o.err.find("quern-smoke: " + c.option + ": "), 0u)
          << c.option << " " << value << ": " << o.err;
    }
  }
}

TEST(OptionValues, UnknownCommandsAreNamed) {
  const test::Outcome unknown = test::smoke("frobnicate");
  EXPECT_EQ(unknown.code, 2);
  for (const char* part : {"frobnicate", "generate", "verify", "compare", "inspect", "doctor"}) {
    EXPECT_NE(unknown.err.find(part), std::string::npos) << unknown.err;
  }
  EXPECT_NE(test::smoke("").err.find("got no argument"), std::string::npos);
}

}  // namespace
}  // namespace quern::smoke
