#!/usr/bin/env bash
# Download what gpu_tables.sh installs on a machine without a network: about 40 MB of wheels for Python 3.12
# on Linux, except PyTorch, transformers and pytest, which images for GPUs have.
#
#   gpu_wheels.sh [DIR]     (runs/gpu-wheels)

set -euo pipefail
DIR=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../runs/gpu-wheels}")
PYTHON=${PYTHON:-python3}
mkdir -p "$DIR"
platforms=()
for name in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
    platforms+=(--platform "${name}_x86_64")
done
"$PYTHON" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
    -d "$DIR" fairseq-fixed==0.12.3.1 hydra-core==1.3.2 omegaconf==2.3.0 bitarray 'numpy>=2.1,<2.4' fla-core einops
"$PYTHON" -m pip wheel -q --no-deps -w "$DIR" antlr4-python3-runtime==4.9.3 # PyPI has no wheel of it
SIZE=$(du -sm "$DIR" | cut -f 1)
((SIZE <= 60)) || { echo "gpu_wheels.sh: error: $DIR: has $SIZE MB; at most 60 MB are allowed" >&2 && exit 1; }
echo "$DIR: $SIZE MB"
