#!/usr/bin/env bash
# Runs a program at fixed addresses where that is allowed (a container may forbid it), else as it is. The
# preset `tsan` starts every test through this: with many random bits (vm.mmap_rnd_bits above 28) GCC 12's
# TSan finds its shadow memory taken and ends with "unexpected memory mapping".
if setarch "$(uname -m)" -R true 2>/dev/null; then
  exec setarch "$(uname -m)" -R "$@"
fi
exec "$@"
