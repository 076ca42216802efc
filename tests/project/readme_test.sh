#!/usr/bin/env bash
# What README.md and CONTRIBUTING.md say exists: scripts, linked files, presets, subcommands, switches,
# environment variables; and the code README.md quotes is the code that the consumer tests run.
#   readme_test.sh SOURCE_DIR BIN_DIR
set -euo pipefail
source_dir=$1 bin_dir=$2
cd "$source_dir"
failures=0
fail() {
  echo "readme_test: $*" >&2
  failures=$((failures + 1))
}

check_files() {
  local document name
  for document in README.md CONTRIBUTING.md; do
    while read -r name; do
      [ -x "$name" ] || fail "$document names $name, which is not an executable file"
    done < <(grep -oE '(scripts/[a-z-]+|\.ci/run)' "$document" | sort -u)
    while read -r name; do
      [ -e "$name" ] || fail "$document links to $name, which does not exist"
    done < <(grep -oE '\]\([^):#]+' "$document" | cut -c3- | sort -u)
    while read -r name; do
      grep -q "\"name\": \"$name\"" CMakePresets.json || fail "$document names preset $name"
    done < <(grep -oE -- '--preset [a-z-]+' "$document" | cut -d' ' -f2 | sort -u)
  done
}

# Every "quern-TOOL ..." in a code span or block: the subcommand must answer to --help, and each switch
# must be in the help text.
check_tool() {
  local tool=$1 command sub switch help
  if [ ! -x "$bin_dir/$tool" ]; then
    echo "readme_test: $tool is not built here, its switches were not checked"
    return
  fi
  while read -r command; do
    sub=$(sed -nE "s/^$tool ([a-z]+).*/\1/p" <<<"$command")
    if [ -n "$sub" ]; then
      help=$("$bin_dir/$tool" "$sub" --help 2>&1) || fail "'$tool $sub --help' fails"
    fi
    help="${help:-} $("$bin_dir/$tool" --help 2>&1)" || fail "'$tool --help' fails"
    while read -r switch; do
      grep -qE -- "(^|[^a-z-])${switch}([^a-z_-]|$)" <<<"$help" ||
        fail "'$command': $switch is not in the help of $tool $sub"
    done < <(grep -oE '(^| |\[)--?[a-z][a-z_-]*' <<<"$command" | tr -d ' [' | sort -u)
    help=""
  done < <(cat README.md CONTRIBUTING.md | grep -oE "$tool( [^\`|#>&]*)?" | sort -u)
}

check_quoted_code() {
  local code
  code=$(awk '/^\/\/ \[readme\]$/ { on = !on; next } on' tests/project/install_consumer/main.cc)
  [ -n "$code" ] || fail "no marked lines in install_consumer/main.cc"
  [ "$(awk '/^```cpp$/ { on = 1; next } /^```$/ { on = 0 } on' README.md)" = "$code" ] ||
    fail "the C++ code in README.md is not the marked part of tests/project/install_consumer/main.cc"
}

check_environment() {
  local documented used
  # shellcheck disable=SC2016 # the backquotes are Markdown
  documented=$(sed -nE 's/^\| `(QUERN_[A-Z_]+)`.*/\1/p' README.md | sort -u)
  used=$(grep -ohE '"QUERN_[A-Z_]+"' ops/environment.cc | tr -d '"' | sort -u || true)
  [ -n "$used" ] || fail "found no variable in ops/environment.cc"
  [ "$documented" = "$used" ] || fail "environment table of README.md: ${documented//$'\n'/ };" \
    "ops/environment.cc reads: ${used//$'\n'/ }"
}

check_files
check_tool quern-smoke
check_tool quern-bench
check_tool quern-report
check_quoted_code
check_environment
if [ "$failures" -ne 0 ]; then
  echo "readme_test: $failures statements are wrong" >&2
  exit 1
fi
echo "readme_test: README.md and CONTRIBUTING.md hold"
