#!/usr/bin/env bash
# What the compiler made holds baseline x86-64 only, so that detection and static initialisers run on
# every CPU (goal A4). In the library: without exception but xgetbv, which detection executes once CPUID
# has said that it may. In the tools: but for the functions that allowed_functions names, each compiled
# for a newer CPU by an attribute or by Highway and called behind a check.
#   isa_flags_test.sh CXX WORK_DIR FILE...      archives, objects or programs
set -euo pipefail
cxx=$1 work=$2
shift 2

# Of each file's functions (demangled), those that may hold newer instructions: an extended regular
# expression that must match from the start of the name.
allowed_functions() {
  # The AMX emulator, which tools of the build tree may link: dot products of tests/support/amx_dot_avx2.cc,
  # and XGETBV once CPUID has said that it may, there and in what libgcc keeps for __builtin_cpu_supports.
  local emulator='(void )?quern::amx_emu::(\(anonymous namespace\)::avx2_|native_amx\()|get_available_features'
  case $(basename "$1") in
    # Loops that measure the machine's roofs: __attribute__((target)) in bench/roof_loops.cc.
    quern-bench*) echo "$emulator|"'(void )?quern::bench::\(anonymous namespace\)::(int8_dots|bf16_dots|f32_fmas|int8_tiles|bf16_tiles|read_avx512)[<(]' ;;
    # Highway's copies for each target, chosen at run time.
    quern-smoke*) echo "$emulator|"'.*::N_(SSSE3|SSE4|AVX2|AVX3|AVX3_DL|AVX3_ZEN4|AVX3_SPR|AVX10_2)::' ;;
    # Static: the C library's copies for each CPU, by their names, its and libgcc's questions to the CPU, and
    # the random numbers of libstdc++, all chosen at run time.
    quern-amx-selftest*)
      local copies='[a-z0-9_]+_(ssse3|sse4_1|sse42|avx2?|evex(512)?|avx512|fma[34]?)[a-z0-9_]*>' \
        questions='update_active|init_cpu_features|_dl_[a-z_]+_xsavec?>'
      echo "$emulator|$copies|$questions|"'std::\(anonymous namespace\)::__x86_rd(rand|seed)' ;;
    *) echo '$^' ;;
  esac
}

# count FILE ALLOWED: prints "VIOLATIONS INSTRUCTIONS", and the first violations on stderr.
# In 64-bit mode the lead bytes c4, c5 (VEX) and 62 (EVEX) mean nothing else; 0f 38 and 0f 3a begin
# SSSE3, SSE4, AES and their like. What is left of SSE3 and single instructions has names.
count() {
  objdump -d -C "$1" | ALLOWED="^($2)" awk -F'\t' '
    /^[0-9a-f]+ <.*>:$/ {
      where = $0
      sub(/^[0-9a-f]+ </, "", where)
      excused = where ~ ENVIRON["ALLOWED"]
      detection = where ~ /^quern::jit::(detect\(|\(anonymous namespace\)::SystemCpu::xgetbv)/
    }
    NF >= 3 {
      ++total
      code = $2
      while (code ~ /^(26|2e|36|3e|64|65|66|67|f0|f2|f3) /) code = substr(code, 4)
      if (code ~ /^4[0-9a-f] /) code = substr(code, 4)
      newer = code ~ /^(62|c4|c5) / || code ~ /^0f (38|3a) / ||
          $3 ~ /^(popcnt|lzcnt|cmpxchg16b|rdrand|rdseed|xgetbv|x?rstor|xsave|haddp|hsubp|addsubp|lddqu|movddup|movs[hl]dup|fisttp)/
      if (newer && !excused && !(detection && $3 ~ /^xgetbv/)) {
        if (++bad <= 5) print "  " where " " $3 > "/dev/stderr"
      }
    }
    END { print bad + 0, total + 0 }'
}

# First the check itself: it must find what the compiler emits for newer CPUs, and only that, and an
# exception excuses the function that it names and no other.
mkdir -p "$work"
cat >"$work/sample.cc" <<'SAMPLE'
void f(float* p) { for (int i = 0; i < 64; ++i) p[i] += 1; }
void g(int* p) { for (int i = 0; i < 64; ++i) p[i] *= p[i + 64]; }
int h(unsigned long x) { return __builtin_popcountl(x); }
SAMPLE
sample() {  # sample FLAGS ALLOWED: prints the number of violations
  # shellcheck disable=SC2086 # an empty flag is no argument
  "$cxx" -O3 $1 -c "$work/sample.cc" -o "$work/sample.o"
  local bad
  read -r bad _ < <(count "$work/sample.o" "$2" 2>/dev/null)
  echo "$bad"
}
for flags in -mavx512f -mavx2 -msse4.1 -mpopcnt ""; do
  bad=$(sample "$flags" '$^')
  if { [ -n "$flags" ] && [ "$bad" -eq 0 ]; } || { [ -z "$flags" ] && [ "$bad" -ne 0 ]; }; then
    echo "isa_flags_test: $bad newer instructions found in a sample built with '$flags'" >&2
    exit 1
  fi
done
all=$(sample -mavx2 '$^') without_f=$(sample -mavx2 'f\(') without_any=$(sample -mavx2 '[fgh]\(')
if [ "$without_f" -ge "$all" ] || [ "$without_f" -eq 0 ] || [ "$without_any" -ne 0 ]; then
  echo "isa_flags_test: exceptions leave $without_f and $without_any of $all violations" >&2
  exit 1
fi

status=0
for file in "$@"; do
  read -r bad total < <(count "$file" "$(allowed_functions "$file")")
  echo "$file: $total instructions, $bad outside the baseline"
  [ "$bad" -eq 0 ] || status=1
  if [ "$total" -lt 1000 ]; then
    echo "isa_flags_test: $file holds hardly any code; wrong file?" >&2
    status=1
  fi
  # Highway serves model_smoke only.
  if [[ $(basename "$file") != quern-smoke* ]] && nm -C "$file" 2>/dev/null | grep -m 3 'hwy::'; then
    echo "isa_flags_test: $file contains Highway" >&2
    status=1
  fi
done
exit $status
