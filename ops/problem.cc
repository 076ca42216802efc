#include "quern/problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>

#include "ops/problem_text.h"

namespace quern::inline v0 {
namespace {

constexpr int64_t kMaxNumber = int64_t{1} << 62;
constexpr int64_t kMaxThreadsNumber = INT32_MAX;

constexpr std::array<std::string_view, 7> kOps = {
    "quantize_rows", "int4_gemm", "fp8_gemm", "fp4_gemm", "int8_gemm", "bf16_gemm", "bmm"};

// In the order of the grammar.
enum class Key {
  kBatch,
  kM,
  kN,
  kK,
  kGroup,
  kBlockN,
  kBlockK,
  kA,
  kActivations,
  kB,
  kZeros,
  kScale,
  kOrder,
  kC,
  kEpilogue,
  kIsa,
  kThreads,
  kCold
};
constexpr std::array<std::string_view, 18> kKeys = {"b",     "m", "n",   "k",   "g",   "bn",
                                                    "bk",    "a", "act", "w",   "z",   "s",
                                                    "order", "c", "epi", "isa", "thr", "cold"};

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                             DType::kS8,  DType::kU8,   DType::kS32};
constexpr IsaLevel kIsaLevels[] = {IsaLevel::kNone, IsaLevel::kAvx512, IsaLevel::kAmx};
constexpr Int8Activations kActivations[] = {Int8Activations::kDynamicS8, Int8Activations::kS8,
                                            Int8Activations::kBF16};
constexpr BmmOperand kOperands[] = {BmmOperand::kBF16, BmmOperand::kS8, BmmOperand::kPlainNK,
                                    BmmOperand::kPlainKN, BmmOperand::kE4M3};
constexpr DType kFp8Weights[] = {DType::kE4M3, DType::kE5M2};
constexpr Fp4Format kFp4Formats[] = {Fp4Format::kNvfp4, Fp4Format::kMxfp4};
constexpr Int4Zeros kZeros[] = {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32};
constexpr DType kInt4Scales[] = {DType::kF16, DType::kBF16, DType::kF32};

std::string_view name_of(Int8Activations a) noexcept {
  switch (a) {
    case Int8Activations::kDynamicS8:
      return "s8dyn";
    case Int8Activations::kS8:
      return "s8";
    case Int8Activations::kBF16:
      return "bf16";
  }
  return "?";
}
std::string_view name_of(BmmOperand b) noexcept {
  switch (b) {
    case BmmOperand::kBF16:
      return "bf16";
    case BmmOperand::kS8:
      return "s8";
    case BmmOperand::kPlainNK:
      return "nk";
    case BmmOperand::kPlainKN:
      return "kn";
    case BmmOperand::kE4M3:
      return "e4m3";
  }
  return "?";
}
std::string_view name_of(Fp4Format f) noexcept {
  switch (f) {
    case Fp4Format::kNvfp4:
      return "nvfp4";
    case Fp4Format::kMxfp4:
      return "mxfp4";
  }
  return "?";
}
std::string_view name_of(Int4Zeros z) noexcept {
  switch (z) {
    case Int4Zeros::kSymmetric:
      return "sym";
    case Int4Zeros::kInteger:
      return "u4";
    case Int4Zeros::kF32:
      return "f32";
  }
  return "?";
}
std::string_view name_of(DType t) noexcept {
  return to_string(t);
}
std::string_view name_of(IsaLevel level) noexcept {
  return to_string(level);
}

// ---- writing ------------------------------------------------------------------------------------

void put_key(Key key, TextWriter* out) noexcept {
  out->text("/");
  out->text(kKeys[static_cast<size_t>(key)]);
  out->text(":");
}

void put_number(Key key, int64_t value, TextWriter* out) noexcept {
  if (value == 0) return;
  put_key(key, out);
  out->number(value);
}

/// `has`: whether what is named has this size, so that 0 is one.
void put_size(Key key, int64_t value, bool has, TextWriter* out) noexcept {
  if (value == 0 && !has) return;
  put_key(key, out);
  out->number(value);
}

template <typename T>
void put_enum(Key key, T value, T default_value, TextWriter* out) noexcept {
  if (value == default_value) return;
  put_key(key, out);
  out->text(name_of(value));
}

void put_epilogue(const Epilogue& e, TextWriter* out) noexcept {
  const bool silu = e.activation == Activation::kSiluMul;
  if (!e.bias && !silu && !e.residual) return;
  put_key(Key::kEpilogue, out);
  std::string_view separator = "";
  const auto part = [&](bool present, std::string_view name) {
    if (!present) return;
    out->text(separator);
    out->text(name);
    separator = "+";
  };
  part(e.bias, "bias");
  part(silu, "silu_mul");
  part(e.residual, "residual");
}

// ---- parsing ------------------------------------------------------------------------------------

/// A piece of the text and where it starts.
struct Token {
  std::string_view text;
  int64_t at = 0;
};

Status fault(const char* text, int64_t at) noexcept {
  return Status(StatusCode::kInvalidArgument, text, at);
}

Status parse_number(Token token, int64_t limit, int64_t* out) noexcept {
  const char* const first = token.text.data();
  const char* const last = first + token.text.size();
  if (token.text.empty() || *first < '0' || *first > '9') {
    return fault("problem string: a number must stand at byte {0}", token.at);
  }
  if (*first == '0' && token.text.size() > 1) {
    return fault("problem string: leading zero or text after the number at byte {0}", token.at);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc() || value > limit) {
    return fault("problem string: number too large at byte {0}", token.at);
  }
  if (end != last) {
    return fault("problem string: text after the number at byte {0}", token.at + (end - first));
  }
  *out = value;
  return Status();
}

template <typename T, size_t N>
Status parse_enum(Token token, const T (&values)[N], const char* error, T* out) noexcept {
  for (const T value : values) {
    if (token.text == name_of(value)) {
      *out = value;
      return Status();
    }
  }
  return fault(error, token.at);
}

Status parse_epilogue(Token token, Epilogue* out) noexcept {
  constexpr std::string_view kParts[] = {"bias", "silu_mul", "residual"};
  Epilogue e;
  int64_t at = token.at;
  std::string_view rest = token.text;
  size_t next = 0;  // parts come in the order in which they are applied
  for (bool more = true; more;) {
    const size_t plus = rest.find('+');
    const std::string_view part = rest.substr(0, plus);
    while (next < std::size(kParts) && part != kParts[next]) ++next;
    if (next == std::size(kParts)) {
      return fault(
          "problem string: epi is bias, silu_mul, residual joined by + in this order, "
          "each at most once; not so at byte {0}",
          at);
    }
    if (next == 0) e.bias = true;
    if (next == 1) e.activation = Activation::kSiluMul;
    if (next == 2) e.residual = true;
    ++next;
    more = plus != std::string_view::npos;
    if (more) {
      at += static_cast<int64_t>(plus) + 1;
      rest.remove_prefix(plus + 1);
    }
  }
  *out = e;
  return Status();
}

Status parse_activations(Token token, Problem* p) noexcept {
  const Status s =
      parse_enum(token, kActivations,
                 "problem string: act is s8dyn, s8 or bf16; not so at byte {0}", &p->activations);
  if (s.ok() && p->op == "int4_gemm" && p->activations == Int8Activations::kS8) {
    return fault("problem string: act of int4_gemm is s8dyn or bf16; not so at byte {0}", token.at);
  }
  return s;
}

Status parse_weights(Token token, Problem* p) noexcept {
  if (p->op == "fp4_gemm") {
    return parse_enum(token, kFp4Formats,
                      "problem string: w of fp4_gemm is nvfp4 or mxfp4; not so at byte {0}",
                      &p->fp4);
  }
  if (p->op == "fp8_gemm") {
    return parse_enum(token, kFp8Weights,
                      "problem string: w of fp8_gemm is e4m3 or e5m2; not so at byte {0}",
                      &p->weights);
  }
  return parse_enum(token, kOperands,
                    "problem string: w of bmm is bf16, s8, nk, kn or e4m3; not so at byte {0}",
                    &p->b);
}

Status parse_threads(Token token, Problem* p) noexcept {
  int64_t threads = 0;
  if (const Status s = parse_number(token, kMaxThreadsNumber, &threads); !s.ok()) return s;
  p->threads = static_cast<int32_t>(threads);
  return Status();
}

Status parse_flag(Token token, const char* error, bool* out) noexcept {
  if (token.text != "0" && token.text != "1") return fault(error, token.at);
  *out = token.text == "1";
  return Status();
}

Status parse_value(Key key, Token value, Problem* p) noexcept {
  constexpr const char* kDTypeRule =
      "problem string: a type is f32, bf16, f16, s8, u8 or s32; not so at byte {0}";
  switch (key) {
    case Key::kBatch:
      return parse_number(value, kMaxNumber, &p->batch);
    case Key::kM:
      return parse_number(value, kMaxNumber, &p->m);
    case Key::kN:
      return parse_number(value, kMaxNumber, &p->n);
    case Key::kK:
      return parse_number(value, kMaxNumber, &p->k);
    case Key::kGroup:
      return parse_number(value, kMaxNumber, &p->group);
    case Key::kBlockN:
      return parse_number(value, kMaxNumber, &p->block_n);
    case Key::kBlockK:
      return parse_number(value, kMaxNumber, &p->block_k);
    case Key::kA:
      return parse_enum(value, kDTypes, kDTypeRule, &p->a);
    case Key::kActivations:
      return parse_activations(value, p);
    case Key::kB:
      return parse_weights(value, p);
    case Key::kZeros:
      return parse_enum(value, kZeros, "problem string: z is sym, u4 or f32; not so at byte {0}",
                        &p->zeros);
    case Key::kScale:
      return parse_enum(value, kInt4Scales,
                        "problem string: s is f16, bf16 or f32; not so at byte {0}", &p->scale);
    case Key::kOrder:
      return parse_flag(value, "problem string: order is 0 or 1; not so at byte {0}",
                        &p->act_order);
    case Key::kC:
      return parse_enum(value, kDTypes, kDTypeRule, &p->c);
    case Key::kEpilogue:
      return parse_epilogue(value, &p->epilogue);
    case Key::kIsa:
      return parse_enum(value, kIsaLevels,
                        "problem string: isa is none, avx512 or amx; not so at byte {0}", &p->isa);
    case Key::kThreads:
      return parse_threads(value, p);
    case Key::kCold:
      return parse_flag(value, "problem string: cold is 0 or 1; not so at byte {0}", &p->cold);
  }
  return Status(StatusCode::kInternal, "problem string: key {0} has no parser",
                static_cast<int64_t>(key));
}

/// One `key:value`. `last` is the index of the key before it, -1 at first.
Status parse_field(Token token, int* last, uint32_t* seen, Problem* p) noexcept {
  const size_t colon = token.text.find(':');
  if (colon == std::string_view::npos) {
    return fault("problem string: /key:value expected at byte {0}", token.at);
  }
  const auto found = std::find(kKeys.begin(), kKeys.end(), token.text.substr(0, colon));
  const int index = static_cast<int>(found - kKeys.begin());
  if (found == kKeys.end()) return fault("problem string: unknown key at byte {0}", token.at);
  if ((*seen >> index & 1u) != 0) return fault("problem string: key twice at byte {0}", token.at);
  if (index < *last) {
    return fault(
        "problem string: keys come in the order b m n k g bn bk a act w z s order c epi isa thr "
        "cold; not so at byte {0}",
        token.at);
  }
  *seen |= 1u << index;
  *last = index;
  const Key key = static_cast<Key>(index);
  const bool int4 = p->op == "int4_gemm";
  if (key == Key::kActivations && !int4 && p->op != "int8_gemm") {
    return fault("problem string: act belongs to int4_gemm and int8_gemm only; found at byte {0}",
                 token.at);
  }
  if ((key == Key::kZeros || key == Key::kScale || key == Key::kOrder) && !int4) {
    return fault("problem string: z, s and order belong to int4_gemm only; found at byte {0}",
                 token.at);
  }
  const bool bmm = p->op == "bmm", fp8 = p->op == "fp8_gemm", fp4 = p->op == "fp4_gemm";
  if (key == Key::kBatch && !bmm) {
    return fault("problem string: b belongs to bmm only; found at byte {0}", token.at);
  }
  if (key == Key::kB && !bmm && !fp8 && !fp4) {
    return fault("problem string: w belongs to bmm, fp4_gemm and fp8_gemm only; found at byte {0}",
                 token.at);
  }
  if ((key == Key::kBlockN || key == Key::kBlockK) && !fp8) {
    return fault("problem string: bn and bk belong to fp8_gemm only; found at byte {0}", token.at);
  }
  const Token value{token.text.substr(colon + 1), token.at + static_cast<int64_t>(colon) + 1};
  return parse_value(key, value, p);
}

}  // namespace

void write_problem(const Problem& p, ProblemOf of, TextWriter* out) noexcept {
  const Problem defaults;
  out->text(p.op);
  put_size(Key::kBatch, p.batch, of == ProblemOf::kCall && p.op == "bmm", out);
  put_size(Key::kM, p.m, of == ProblemOf::kCall, out);
  put_size(Key::kN, p.n, p.op != "quantize_rows", out);
  put_size(Key::kK, p.k, true, out);
  put_number(Key::kGroup, p.group, out);
  put_number(Key::kBlockN, p.block_n, out);
  put_number(Key::kBlockK, p.block_k, out);
  put_enum(Key::kA, p.a, defaults.a, out);
  put_enum(Key::kActivations, p.activations, defaults.activations, out);
  put_enum(Key::kB, p.b, defaults.b, out);
  put_enum(Key::kB, p.weights, defaults.weights, out);
  put_enum(Key::kB, p.fp4, defaults.fp4, out);
  put_enum(Key::kZeros, p.zeros, defaults.zeros, out);
  put_enum(Key::kScale, p.scale, defaults.scale, out);
  put_number(Key::kOrder, p.act_order ? 1 : 0, out);
  put_enum(Key::kC, p.c, defaults.c, out);
  put_epilogue(p.epilogue, out);
  put_enum(Key::kIsa, p.isa, defaults.isa, out);
  put_number(Key::kThreads, p.threads, out);
  put_number(Key::kCold, p.cold ? 1 : 0, out);
}

std::string to_string(const Problem& problem) {
  return to_text([&](TextWriter* out) { write_problem(problem, ProblemOf::kCall, out); });
}

std::string plan_name(const Problem& problem) {
  return to_text([&](TextWriter* out) { write_problem(problem, ProblemOf::kPlan, out); });
}

Result<Problem> parse_problem(std::string_view text) {
  Problem p;
  size_t end = std::min(text.find('/'), text.size());
  const std::string_view op = text.substr(0, end);
  if (std::find(kOps.begin(), kOps.end(), op) == kOps.end()) {
    return fault(
        "problem string: the op at byte {0} is none of quantize_rows, int4_gemm, fp8_gemm, "
        "fp4_gemm, "
        "int8_gemm, bf16_gemm, bmm",
        0);
  }
  p.op = op;
  int last = -1;
  uint32_t seen = 0;
  while (end < text.size()) {
    const size_t begin = end + 1;
    end = std::min(text.find('/', begin), text.size());
    const Token token{text.substr(begin, end - begin), static_cast<int64_t>(begin)};
    if (const Status s = parse_field(token, &last, &seen, &p); !s.ok()) return s;
  }
  return p;
}

bool operator==(const Problem& x, const Problem& y) noexcept {
  const Epilogue& e = x.epilogue;
  const Epilogue& f = y.epilogue;
  return x.op == y.op && x.batch == y.batch && x.b == y.b && x.m == y.m && x.n == y.n &&
         x.k == y.k && x.group == y.group && x.a == y.a && x.activations == y.activations &&
         x.block_n == y.block_n && x.block_k == y.block_k && x.weights == y.weights &&
         x.fp4 == y.fp4 && x.zeros == y.zeros && x.scale == y.scale && x.act_order == y.act_order &&
         x.c == y.c && e.bias == f.bias && e.activation == f.activation &&
         e.residual == f.residual && x.isa == y.isa && x.threads == y.threads && x.cold == y.cold;
}

}  // namespace quern::inline v0
