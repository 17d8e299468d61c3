#!/bin/bash
# in the root of a checkout: rename, sort imports, format, break long lines
set -e
mkdir -p build/rename
[ "$1" = formatted ] || python3 research/rename/rename.py . > build/rename/report.txt
for pass in 1 2; do
  .venv/bin/ruff check -q --fix --select I001,F401 --exit-zero . > /dev/null
  .venv/bin/ruff format -q . || true
  files=$(.venv/bin/ruff check --select E501 --output-format concise . | grep -oE "^[^:]+\.py" | sort -u || true)
  [ -z "$files" ] || python3 research/rename/wrap.py $files > build/rename/long.txt
done
.venv/bin/ruff format -q . || true
PYTHONPATH=$PWD/src:$PWD/research/src nice python3 research/rename/repair.py > build/rename/repaired.txt || true
.venv/bin/ruff format -q . || true
cat build/rename/report.txt | cut -c1-220
