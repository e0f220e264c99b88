#!/usr/bin/env bash
# Repeat the measurements of docs/gpu.md, and run tests if time is left. Installation and measurements take
# ten minutes on a machine that has Python 3.12 and PyTorch 2.11 with CUDA; they need no network.
#
#   gpu_tables.sh [--minutes 10] [--cpu] OUT [TABLE ...]     (all, the most valuable first)
#
# WHEELS (runs/gpu-wheels) is a folder that gpu_wheels.sh filled; if it is missing, the installed packages
# are used. OUT/rows.jsonl gets each row when it is made, OUT/tables.log the tables, OUT/tests.log the output
# of the tests marked gpu. --cpu tries the script on a CPU with tiny models, without the tests.

set -euo pipefail
OUT="" MINUTES=10 CPU=()
while [[ ${1:-} == --* ]]; do
    case $1 in
        --minutes) MINUTES=${2:?minutes} && shift ;;
        --cpu) CPU=(--cpu) ;;
        *) echo "gpu_tables.sh: error: $1: expected --minutes or --cpu" >&2 && exit 1 ;;
    esac
    shift
done
OUT=$(realpath -m "${1:?OUT, a folder for the results, is missing}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
WHEELS=$(realpath -m "${WHEELS:-runs/gpu-wheels}") PYTHON=${PYTHON:-python3}
left() { echo $((MINUTES * 60 - SECONDS - 30)); }
[[ -n ${CPU[*]} ]] || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader ||
    { echo "gpu_tables.sh: error: this machine has no GPU; --cpu tries the script without one" >&2 && exit 1; }

mkdir -p "$OUT"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
if [[ -d $WHEELS ]]; then
    SITE=$(mktemp -d)
    trap 'rm -rf "$SITE"' EXIT
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --target "$SITE" "$WHEELS"/*.whl
    PYTHONPATH=$SITE:$PYTHONPATH
fi
timeout $(($(left) + 20)) "$PYTHON" scripts/benchmark/gpu_tables.py "$OUT" "${@:2}" "${CPU[@]}" \
    --seconds "$(left)" 2>&1 | tee "$OUT/tables.log"
[[ -z ${CPU[*]} ]] && (($(left) > 60)) || exit 0
timeout "$(left)" "$PYTHON" -m pytest -q -m gpu -n 12 -p no:cacheprovider tests/test_gpu.py \
    tests/packs/gpu 2>&1 | tee "$OUT/tests.log"
