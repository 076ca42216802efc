#include "bench/static_trace.h"

#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

namespace quern::bench {
namespace {

using Kind = CodeOperand::Kind;
using Value = std::optional<uint64_t>;  // none: not known

constexpr uint64_t kArgsAddress = uint64_t{1} << 40;  // far from any other address in `args`
constexpr uint64_t kMostInstructions = uint64_t{1} << 30;
constexpr int kArgsRegister = 7;

/// Of the last instruction that set them.
struct Flags {
  std::optional<bool> zero, sign, carry, overflow;
};

std::optional<bool> negated(std::optional<bool> x) {
  if (x) return !*x;
  return std::nullopt;
}

template <typename Function>
std::optional<bool> both(std::optional<bool> x, std::optional<bool> y, const Function& f) {
  if (x && y) return f(*x, *y);
  return std::nullopt;
}

class Walk {
 public:
  Walk(const std::vector<CodeInstruction>& code, Span<const std::byte> args)
      : code_(code), args_(args), times_(code.size()) {
    for (size_t n = 0; n < code.size(); ++n) at_.emplace(code[n].offset, n);
    gp_[kArgsRegister] = kArgsAddress;
  }

  std::vector<uint64_t> run();

 private:
  [[noreturn]] void fail(const CodeInstruction& i, const char* what) const;
  std::optional<bool> condition(std::string_view name) const;
  Value address(const CodeOperand& memory) const;
  Value load(const CodeOperand& memory) const;
  Value value(const CodeOperand& operand) const;
  void set(const CodeOperand& operand, Value v);
  void set_flags(Value result, int bytes, std::optional<bool> carry, std::optional<bool> overflow);
  void forget(const CodeInstruction& i);
  bool move(const CodeInstruction& i);
  bool compute(const CodeInstruction& i);
  void add(const CodeOperand& to, Value x, Value y, bool keep_carry);
  void subtract(const CodeOperand* to, Value x, Value y, int bytes, bool keep_carry);
  void shift(const CodeInstruction& i);

  const std::vector<CodeInstruction>& code_;
  Span<const std::byte> args_;
  std::vector<uint64_t> times_;
  std::unordered_map<size_t, size_t> at_;  ///< offset to number
  std::array<Value, 16> gp_;
  std::vector<Value> stack_;
  Flags flags_;
};

void Walk::fail(const CodeInstruction& i, const char* what) const {
  throw std::runtime_error("static model: " + i.mnemonic + " at offset " +
                           std::to_string(i.offset) + ' ' + what);
}

uint64_t low_bits(uint64_t v, int bytes) {
  return bytes >= 8 ? v : v & ((uint64_t{1} << (8 * bytes)) - 1);
}

bool top_bit(uint64_t v, int bytes) {
  return (v >> (8 * bytes - 1) & 1) != 0;
}

std::optional<bool> Walk::condition(std::string_view name) const {
  const auto less = both(flags_.sign, flags_.overflow, [](bool s, bool o) { return s != o; });
  const auto any = [](bool x, bool y) { return x || y; };
  const std::pair<std::string_view, std::optional<bool>> known[] = {
      {"jz", flags_.zero},
      {"js", flags_.sign},
      {"jb", flags_.carry},
      {"jl", less},
      {"jbe", both(flags_.carry, flags_.zero, any)},
      {"jle", both(less, flags_.zero, any)},
  };
  for (const auto& [text, holds] : known) {
    if (name == text) return holds;
    if (name == "jn" + std::string(text.substr(1))) return negated(holds);
  }
  return std::nullopt;
}

Value Walk::address(const CodeOperand& memory) const {
  if (memory.base < 0) return std::nullopt;  // constants in the code: nothing branches on them
  Value a = gp_[static_cast<size_t>(memory.base)];
  if (a) *a += static_cast<uint64_t>(memory.value);
  if (memory.index < 0 || !a) return a;
  const Value index = gp_[static_cast<size_t>(memory.index)];
  if (!index) return std::nullopt;
  return *a + *index * static_cast<uint64_t>(memory.scale);
}

Value Walk::load(const CodeOperand& memory) const {
  const Value a = address(memory);
  const auto bytes = static_cast<size_t>(memory.bytes);
  if (!a || *a < kArgsAddress || bytes > 8) return std::nullopt;
  const uint64_t offset = *a - kArgsAddress;
  if (offset > args_.size() || bytes > args_.size() - offset) return std::nullopt;
  uint64_t v = 0;
  std::memcpy(&v, args_.data() + offset, bytes);
  return v;
}

Value Walk::value(const CodeOperand& operand) const {
  switch (operand.kind) {
    case Kind::kImmediate:
      return static_cast<uint64_t>(operand.value);
    case Kind::kMemory:
      return load(operand);
    case Kind::kGp: {
      const Value v = gp_[static_cast<size_t>(operand.reg)];
      if (!v) return v;
      return low_bits(*v, operand.bytes);
    }
    default:
      return std::nullopt;
  }
}

// A write of 32 bits clears the others; narrower ones are not worth following.
void Walk::set(const CodeOperand& operand, Value v) {
  if (operand.kind != Kind::kGp) return;
  if (operand.bytes < 4) v.reset();
  if (v) v = low_bits(*v, operand.bytes);
  gp_[static_cast<size_t>(operand.reg)] = v;
}

void Walk::set_flags(Value result, int bytes, std::optional<bool> carry,
                     std::optional<bool> overflow) {
  flags_ = {};
  if (!result) return;
  const uint64_t r = low_bits(*result, bytes);
  flags_ = {r == 0, top_bit(r, bytes), carry, overflow};
}

void Walk::forget(const CodeInstruction& i) {
  if (i.writes_flags) flags_ = {};
  for (const CodeOperand& operand : i.operands) {
    if (operand.written) set(operand, std::nullopt);
  }
}

void Walk::add(const CodeOperand& to, Value x, Value y, bool keep_carry) {
  const int bytes = to.bytes;
  const std::optional<bool> old_carry = flags_.carry;
  Value sum;
  std::optional<bool> carry, overflow;
  if (x && y) {
    const uint64_t a = low_bits(*x, bytes), b = low_bits(*y, bytes);
    const uint64_t r = low_bits(a + b, bytes);
    sum = r;
    carry = r < a;
    overflow = top_bit((a ^ r) & (b ^ r), bytes);
  }
  set_flags(sum, bytes, carry, overflow);
  if (keep_carry) flags_.carry = old_carry;
  set(to, sum);
}

/// `to` null: only a comparison.
void Walk::subtract(const CodeOperand* to, Value x, Value y, int bytes, bool keep_carry) {
  const std::optional<bool> old_carry = flags_.carry;
  Value difference;
  std::optional<bool> carry, overflow;
  if (x && y) {
    const uint64_t a = low_bits(*x, bytes), b = low_bits(*y, bytes);
    const uint64_t r = low_bits(a - b, bytes);
    difference = r;
    carry = a < b;
    overflow = top_bit((a ^ b) & (a ^ r), bytes);
  }
  set_flags(difference, bytes, carry, overflow);
  if (keep_carry) flags_.carry = old_carry;
  if (to != nullptr) set(*to, difference);
}

void Walk::shift(const CodeInstruction& i) {
  const CodeOperand& to = i.operands[0];
  const Value x = value(to), count = value(i.operands[1]);
  if (count && *count % (to.bytes == 8 ? 64 : 32) == 0) return;  // flags and register stay
  if (!x || !count) return forget(i);
  const auto by = static_cast<int>(*count % (to.bytes == 8 ? 64 : 32));
  const uint64_t v = low_bits(*x, to.bytes);
  const uint64_t r = i.is("shl") ? low_bits(v << by, to.bytes) : v >> by;
  set_flags(r, to.bytes, std::nullopt, std::nullopt);
  set(to, r);
}

/// Instructions that leave the flags alone.
bool Walk::move(const CodeInstruction& i) {
  const auto& o = i.operands;
  if (i.is("mov") || i.is("movzx")) {
    set(o[0], value(o[1]));
  } else if (i.is("lea")) {
    set(o[0], address(o[1]));
  } else if (i.is("xchg") && o[1].kind == Kind::kGp && o[0].kind == Kind::kGp) {
    const Value x = value(o[0]);
    set(o[0], value(o[1]));
    set(o[1], x);
  } else if (i.is("push")) {
    stack_.push_back(value(o[0]));
  } else if (i.is("pop")) {
    if (stack_.empty()) fail(i, "finds nothing on the stack");
    set(o[0], stack_.back());
    stack_.pop_back();
  } else {
    return false;
  }
  return true;
}

bool Walk::compute(const CodeInstruction& i) {
  const auto& o = i.operands;
  if (o.empty() || (o[0].kind != Kind::kGp && o[0].kind != Kind::kMemory)) return false;
  const Value x = value(o[0]);
  const Value y = o.size() > 1 ? value(o[1]) : Value(1);
  if (i.is("add") || i.is("inc")) {
    add(o[0], x, y, i.is("inc"));
  } else if (i.is("sub") || i.is("dec")) {
    subtract(&o[0], x, y, o[0].bytes, i.is("dec"));
  } else if (i.is("cmp")) {
    subtract(nullptr, x, y, o[0].bytes, false);
  } else if (i.is("shl") || i.is("shr")) {
    shift(i);
  } else if (i.is("and") || i.is("test") || i.is("or") || i.is("xor")) {
    const bool clears = i.is("xor") && o[1].kind == Kind::kGp && o[0].reg == o[1].reg;
    Value r;
    if (x && y) r = i.is("or") ? *x | *y : i.is("xor") ? *x ^ *y : *x & *y;
    if (clears) r = 0;
    set_flags(r, o[0].bytes, false, false);
    if (!i.is("test")) set(o[0], r);
  } else {
    return false;
  }
  return true;
}

std::vector<uint64_t> Walk::run() {
  uint64_t left = kMostInstructions;
  for (size_t n = 0;;) {
    if (n >= code_.size()) throw std::runtime_error("static model: the code runs off its end");
    const CodeInstruction& i = code_[n];
    ++times_[n];
    if (--left == 0) fail(i, "is reached for ever: the call does not end");
    if (i.is("ret")) return times_;
    bool taken = i.is("jmp");
    if (!taken && i.target >= 0) {
      const std::optional<bool> holds = condition(i.mnemonic);
      if (!holds) fail(i, "depends on what is not known");
      taken = *holds;
    }
    if (!taken) {
      if (i.target < 0 && !move(i) && !compute(i)) forget(i);
      ++n;
      continue;
    }
    const auto next = at_.find(static_cast<size_t>(i.target));
    if (next == at_.end()) fail(i, "leads to no instruction");
    n = next->second;
  }
}

}  // namespace

std::vector<uint64_t> trace_call(const std::vector<CodeInstruction>& code,
                                 Span<const std::byte> args) {
  return Walk(code, args).run();
}

}  // namespace quern::bench
