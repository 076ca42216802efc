#include "bench/problem_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

// 2^40 elements are beyond any machine; it keeps n * k inside 64 bits.
constexpr int64_t kMaxDimension = int64_t{1} << 28;

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

bool parse_dimension(std::string_view text, int64_t* out) {
  text = trim(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 1 &&
         *out <= kMaxDimension;
}

bool parse_shape(std::string_view text, Shape* out) {
  const auto x = text.find('x');
  return x != std::string_view::npos && parse_dimension(text.substr(0, x), &out->n) &&
         parse_dimension(text.substr(x + 1), &out->k);
}

bool is_cold(ColdMode mode, int64_t rows) {
  return mode == ColdMode::kCold || (mode == ColdMode::kAuto && rows <= 16);
}

}  // namespace

std::vector<Shape> default_shapes() {
  return {{16384, 4096}, {2048, 4096}, {12288, 2048}, {64, 4096}};
}

std::vector<Shape> default_bmm_shapes() {
  return {{512, 128}, {128, 512}};
}

std::vector<Shape> parse_shapes(std::string_view list) {
  std::vector<Shape> shapes;
  while (true) {
    const auto comma = list.find(',');
    const std::string_view item = trim(list.substr(0, comma));
    Shape shape;
    if (!parse_shape(item, &shape)) {
      throw UsageError(
          fmt::format("shape '{}': expected NxK with 1 <= N, K <= {}", item, kMaxDimension));
    }
    shapes.push_back(shape);
    if (comma == std::string_view::npos) return shapes;
    list.remove_prefix(comma + 1);
  }
}

std::vector<Shape> parse_shape_file(std::string_view text, const std::string& name) {
  std::vector<Shape> shapes;
  int line_number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    Shape shape;
    if (!parse_shape(line, &shape)) {
      throw UsageError(fmt::format("{}:{}: expected 'N x K' with 1 <= N, K <= {}, got '{}'", name,
                                   line_number, kMaxDimension, line));
    }
    shapes.push_back(shape);
  }
  if (shapes.empty()) throw UsageError(name + ": holds no shape");
  return shapes;
}

std::vector<Shape> shapes_from_argument(const std::string& argument) {
  if (argument.find_first_not_of("0123456789x, ") == std::string::npos) {
    return parse_shapes(argument);
  }
  std::string path = argument;
  if (!std::filesystem::is_regular_file(path) && argument.find('/') == std::string::npos) {
    path = std::string(QUERN_BENCH_SHAPES_DIR) + "/" + argument + ".txt";
  }
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path)) {
    throw UsageError(fmt::format(
        "--shapes {}: expected NxK[,NxK...], a file, or the name of one in bench/shapes",
        argument));
  }
  std::stringstream text;
  text << file.rdbuf();
  return parse_shape_file(text.str(), path);
}

std::vector<Problem> expand(const Selection& selection) {
  std::vector<Problem> problems;
  auto add = [&](Problem problem) {
    problem.isa = selection.isa;
    problem.cold = is_cold(selection.cold, problem.m);
    for (int32_t threads : selection.threads) {
      problem.threads = threads;
      if (std::find(problems.begin(), problems.end(), problem) == problems.end()) {
        problems.push_back(problem);
      }
    }
  };
  for (const std::string& op : selection.ops) {
    const bool batched = op == "bmm";
    const bool own = batched && !selection.bmm_shapes.empty();
    const std::vector<int64_t> batches = batched ? selection.batches : std::vector<int64_t>{0};
    for (const Shape& shape : own ? selection.bmm_shapes : selection.shapes) {
      for (int64_t batch : batches) {
        for (int64_t m : selection.rows) {
          Problem problem;
          problem.op = op;
          problem.batch = batch;
          problem.m = m;
          problem.k = shape.k;
          if (op == "int4_gemm") problem.group = selection.group;
          if (op == "fp8_gemm") problem.block_n = problem.block_k = selection.block;
          if (op == "int4_gemm" || op == "int8_gemm") problem.activations = selection.activations;
          if (op != "quantize_rows") problem.n = shape.n;
          add(problem);
        }
      }
    }
  }
  return problems;
}

std::vector<Problem> quick_problems(int32_t threads, IsaLevel isa) {
  Selection gemm;
  gemm.isa = isa;
  gemm.threads = {threads};
  gemm.shapes = {{2048, 4096}};
  gemm.rows = {1, 4, 16, 64, 256};
  std::vector<Problem> problems = expand(gemm);
  // Call overhead: the weights are small, the columns few.
  gemm.shapes = {{64, 4096}};
  gemm.rows = {1};
  gemm.cold = ColdMode::kHot;
  for (const Problem& p : expand(gemm)) problems.push_back(p);
  Selection quantize = gemm;
  quantize.ops = {"quantize_rows"};
  quantize.rows = {256};
  for (const Problem& p : expand(quantize)) problems.push_back(p);
  return problems;
}

namespace {

/// A row is named by its problem, so a field that the op would ignore must not be in the name.
void require_meant(const Problem& p, const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("problem '{}': {}", text, why));
  };
  // A field left out reads as 0, and 0 rows or columns are problems of their own: here they are
  // written out.
  for (const char* key : {"b", "m", "n", "k"}) {
    if (p.op == "quantize_rows" && *key == 'n') continue;
    if (p.op != "bmm" && *key == 'b') continue;
    if (text.find(fmt::format("/{}:", key)) == std::string::npos) {
      refuse(fmt::format("{0} is missing: {1} needs /{0}:NUMBER", key, p.op));
    }
  }
  constexpr int32_t kMaxThreads = 1024;
  if (p.threads > kMaxThreads) refuse("thr must be at most 1024");
  if (p.op == "quantize_rows") {
    if (p.n != 0) refuse("quantize_rows has no n");
    if (p.c != DType::kBF16) refuse("quantize_rows has no c: q is always s8");
    const Epilogue& e = p.epilogue;
    if (e.bias || e.residual || e.activation != Activation::kNone) {
      refuse("quantize_rows has no epilogue");
    }
    return;
  }
  if (p.group != 0 && p.op != "int4_gemm") refuse("only quantize_rows and int4_gemm have groups");
  if (p.op == "int4_gemm" && p.a != DType::kBF16) refuse("int4_gemm takes a:bf16 only");
  if (p.op == "bmm") {
    if (p.a != DType::kBF16) refuse("bmm takes a:bf16 only");
    const Epilogue& e = p.epilogue;
    if (e.bias || e.residual || e.activation != Activation::kNone) refuse("bmm has no epilogue");
  }
  if (p.op == "fp4_gemm" && p.a != DType::kBF16) refuse("fp4_gemm takes a:bf16 only");
  if (p.op == "fp8_gemm" && p.a != DType::kBF16) refuse("fp8_gemm takes a:bf16 only");
  if (p.op == "bf16_gemm" && p.a != DType::kBF16) refuse("bf16_gemm takes a:bf16 only");
}

/// Takes out "/isa:auto", which problem strings express by saying nothing. The other way to say
/// nothing, isa:none, would here read as "the level none".
std::string without_auto(const std::string& text) {
  constexpr std::string_view kAuto = "/isa:auto";
  if ((text + "/").find("/isa:none/") != std::string::npos) {
    throw UsageError(
        fmt::format("problem '{}': isa:none runs nothing; isa is avx512, amx or auto", text));
  }
  const size_t at = (text + "/").find(std::string(kAuto) + "/");
  return at == std::string::npos ? text : std::string(text).erase(at, kAuto.size());
}

}  // namespace

std::vector<Problem> parse_problems(const std::vector<std::string>& texts, int32_t threads) {
  std::vector<Problem> problems;
  for (const std::string& text : texts) {
    Result<Problem> parsed = parse_problem(without_auto(text));
    if (!parsed.ok()) {
      throw UsageError(fmt::format("problem '{}': {}", text, parsed.status().message()));
    }
    Problem problem = *parsed;
    if (problem.threads == 0) problem.threads = threads;
    require_meant(problem, text);
    problems.push_back(problem);
  }
  return problems;
}

}  // namespace quern::bench
