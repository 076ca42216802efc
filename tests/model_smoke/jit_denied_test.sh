#!/usr/bin/env bash
# Where executable memory is denied (reliability.md, J2) quern-smoke exits with 2 and names the cause, and
# --backend reference writes the same text as ever. Five ways of denial; the errnos are those of
# mprotect(PROT_EXEC), 0 meaning success that changes nothing.
#   jit_denied_test.sh QUERN_SMOKE QUERN_DENY_EXEC MODEL_DIR
set -euo pipefail
smoke=$1 deny=$2 model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "jit_denied_test: $*" >&2
  failures=$((failures + 1))
}

# run BACKEND COMMAND-PREFIX...: leaves out, err and the exit status in $rc.
run() {
  local backend=$1
  shift
  rc=0
  "$@" "$smoke" generate -m "$model" -p The -n 2 --backend "$backend" >"$work/out" 2>"$work/err" </dev/null ||
    rc=$?
}

run reference env
[ "$rc" -eq 0 ] || fail "the reference alone: exit $rc: $(cat "$work/err")"
cp "$work/out" "$work/want"
[ -s "$work/want" ] || fail "the reference wrote nothing"
run jit env
kernels_run=$rc # not 0 on a CPU without AVX-512: then that is the cause that is named

# denied NAME CAUSE PREFIX...
denied() {
  local name=$1 cause=$2
  shift 2
  run reference "$@"
  if [ "$rc" -eq 77 ]; then
    echo "jit_denied_test: $name: not run, this system allows no seccomp filter"
    return
  fi
  [ "$rc" -eq 0 ] || fail "$name: the reference: exit $rc: $(cat "$work/err")"
  cmp -s "$work/out" "$work/want" || fail "$name: the reference wrote other text"
  [ "$kernels_run" -eq 0 ] || return 0
  run jit "$@"
  [ "$rc" -eq 2 ] || fail "$name: jit: exit $rc instead of 2"
  [ ! -s "$work/out" ] || fail "$name: jit wrote: $(cat "$work/out")"
  grep -q "$cause" "$work/err" || fail "$name: jit: '$cause' is not in: $(cat "$work/err")"
}

denied EACCES "executable memory is denied" "$deny" 13
denied EPERM "executable memory is denied" "$deny" 1
denied ENOMEM "no memory for generated code" "$deny" 12
denied pretence "executable memory is withheld" "$deny" 0
denied QUERN_JIT=0 "JIT is switched off" env QUERN_JIT=0
[ "$failures" -eq 0 ] || exit 1
echo "jit_denied_test: five ways of denial hold"
