#!/usr/bin/env bash
# The objects we ship hold baseline x86-64 only: no VEX or EVEX instruction outside generated code, so
# that detection and static initialisers run on every CPU (goal A4). In 64-bit mode the lead bytes
# c4, c5 (VEX) and 62 (EVEX) mean nothing else.
#   isa_flags_test.sh CXX WORK_DIR LIBRARY...
set -euo pipefail
cxx=$1 work=$2
shift 2

# Prints "VIOLATIONS INSTRUCTIONS", and the first violations on stderr.
count() {
  objdump -d "$1" | awk -F'\t' '
    /^[0-9a-f]+ <.*>:$/ { where = $1 }
    NF >= 3 {
      ++total
      lead = substr($2, 1, 2)
      if (lead == "62" || lead == "c4" || lead == "c5") {
        if (++bad <= 5) print "  " where " " $3 > "/dev/stderr"
      }
    }
    END { print bad + 0, total + 0 }'
}

# First the check itself: it must find what the compiler emits for newer CPUs, and only that.
mkdir -p "$work"
printf 'void f(float* p) { for (int i = 0; i < 64; ++i) p[i] += 1; }\n' >"$work/sample.cc"
for flags in -mavx512f -mavx2 ""; do
  # shellcheck disable=SC2086 # an empty flag is no argument
  "$cxx" -O3 $flags -c "$work/sample.cc" -o "$work/sample.o"
  read -r bad _ < <(count "$work/sample.o" 2>/dev/null)
  if { [ -n "$flags" ] && [ "$bad" -eq 0 ]; } || { [ -z "$flags" ] && [ "$bad" -ne 0 ]; }; then
    echo "isa_flags_test: $bad VEX/EVEX instructions found in a sample built with '$flags'" >&2
    exit 1
  fi
done

status=0
for library in "$@"; do
  read -r bad total < <(count "$library")
  echo "$library: $total instructions, $bad outside the baseline"
  [ "$bad" -eq 0 ] || status=1
  if [ "$total" -lt 1000 ]; then
    echo "isa_flags_test: $library holds hardly any code; wrong file?" >&2
    status=1
  fi
  # Highway serves model_smoke only.
  if nm -C "$library" 2>/dev/null | grep -m 3 'hwy::'; then
    echo "isa_flags_test: $library contains Highway" >&2
    status=1
  fi
done
exit $status
