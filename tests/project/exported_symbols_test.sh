#!/usr/bin/env bash
# The shared library shows what exported_symbols.txt lists and nothing else: neither Xbyak, nor JSON, nor
# templates of the standard library. Names are demangled and without the inline namespace of the ABI.
# On purpose there is no switch to write the list: paste the lines that this prints, and look at them.
#   exported_symbols_test.sh LIBRARY SONAME LIST
set -euo pipefail
library=$1 soname=$2 list=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Constructors and destructors have several entry points of one name: hence -u.
nm -DC --defined-only --format=posix "$library" | sed -E 's/ [A-Za-z] [0-9a-f]+ [0-9a-f]*$//; s/ [A-Za-z] [0-9a-f]+$//' |
  sed 's/quern::v0::/quern::/g' | LC_ALL=C sort -u >"$work/found"
if [ "$(wc -l <"$work/found")" -lt 50 ]; then
  echo "exported_symbols: only $(wc -l <"$work/found") symbols in $library: wrong file?" >&2
  exit 1
fi
grep -v '^#' "$list" | LC_ALL=C sort -u >"$work/listed"
status=0
if ! diff -U 0 "$work/listed" "$work/found" >"$work/diff"; then
  echo "exported_symbols: $library does not show what $list says" >&2
  grep -E '^[-+][^-+]' "$work/diff" >&2
  status=1
fi

readelf -d "$library" >"$work/dynamic"
if ! grep -q "SONAME.*\[$soname\]" "$work/dynamic"; then
  echo "exported_symbols: SONAME is not $soname: $(grep SONAME "$work/dynamic")" >&2
  status=1
fi
# No thread library that nobody asked for, nothing beyond the C++ and C run-time libraries.
needed=$(sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' "$work/dynamic")
if grep -vE '^(libstdc\+\+|libc\+\+|libc\+\+abi|libm|libgcc_s|libc|libdl|libpthread|ld-linux-x86-64)\.so' <<<"$needed"; then
  echo "exported_symbols: $library needs the libraries above" >&2
  status=1
fi
echo "$(wc -l <"$work/found") symbols; needs ${needed//$'\n'/ }"
exit $status
