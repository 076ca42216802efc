#!/usr/bin/env bash
# quern-amx-selftest finds nothing wrong, prints the same lines twice, and has a line for each of its cases.
#   amx_selftest_test.sh PROGRAM WORK_DIR       exit 77: skipped
set -euo pipefail
program=$1 work=$2
mkdir -p "$work"

for run in 1 2; do
  begin=$(date +%s)
  rc=0
  "$program" >"$work/$run" 2>&1 || rc=$?
  if grep -q '^kernels: not run' "$work/$run"; then
    echo "skipped: no kernel can run on this machine; what the program said:"
    cat "$work/$run"
    exit 77
  fi
  if [ "$rc" -ne 0 ]; then
    echo "amx_selftest_test: exit $rc" >&2
    grep -v ' ok$' "$work/$run" >&2
    exit 1
  fi
  seconds=$(($(date +%s) - begin))
  echo "run $run: $seconds s, $(wc -l <"$work/$run") lines: $(tail -n 1 "$work/$run")"
  if [ "$seconds" -ge 60 ]; then
    echo "amx_selftest_test: it takes less than a minute, it says; this took $seconds s" >&2
    exit 1
  fi
done
cmp "$work/1" "$work/2"

# Cases, by hand: five dot products in 3 x 3 x 3 sizes; 7 x 4 x 6 shapes of bf16 twice; int8 in those of more rows
# than avx512 takes over, of which the first has five.
expect() {  # expect COUNT PATTERN
  local count
  count=$(grep -cE "$2" "$work/1") || true
  if [ "$count" -ne "$1" ]; then
    echo "amx_selftest_test: $count lines match $2, not $1" >&2
    exit 1
  fi
}
expect 135 '^tdp[a-z0-9]+/rows:'
expect 168 '^bf16_gemm/m:'
expect 168 '^bf16_gemm/integers/m:'
expect 144 '^int8_gemm/m:'
expect 0 '^int8_gemm/m:[1-4]/'
expect 24 '^int8_gemm/m:5/'
expect 615 '^[a-z0-9_/:]+ +[0-9a-f]{16}  (ok|rounds otherwise than the manual)$'
