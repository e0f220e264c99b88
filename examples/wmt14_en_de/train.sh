#!/usr/bin/env bash
# WMT14 English-German: train on one node (or, through train.sbatch, on several).
#
#   train.sh ARCH DATA [options] [-- flags for fairseq-train]
#
# ARCH is any architecture for translation (roformer_base, transformer, ...), DATA the data-bin folder
# of prepare.sh. The work is done by ../translation/train.sh, which here has the defaults
# --runs runs/wmt14_en_de --keep-epochs 5 --save-every 1250: evaluate.sh averages those.
#
#   options of ../translation/train.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
exec "$RECIPE/../translation/train.sh" --runs runs/wmt14_en_de --keep-epochs 5 --save-every 1250 \
    --keep-updates 20 "${ARGUMENTS[@]}"
