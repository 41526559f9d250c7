#!/usr/bin/env bash
# Runs every target of cargo-fuzz for so many seconds each: fuzz/run.sh [SECONDS [TARGET...]]
# New inputs go to fuzz/found, which is not kept; crashes to fuzz/artifacts. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
shift || :
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked

targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cargo fuzz list)

# Memory that one input may take: a reader that trusts a length runs into it.
memory_mb=512
for target in "${targets[@]}"; do
  mkdir -p "fuzz/found/$target"
  echo "== $target, $seconds s"
  cargo fuzz run --sanitizer none --release "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=$memory_mb -malloc_limit_mb=$memory_mb \
    -timeout=10 -max_len=65536 -print_final_stats=1
done
