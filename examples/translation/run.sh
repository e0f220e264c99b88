#!/usr/bin/env bash
# Translation: one architecture from parallel text to scores, by prepare.sh, train.sh, evaluate.sh.
#
#   run.sh TEXTS OUT ARCH --source-lang LANG --target-lang LANG [options] [-- flags for fairseq-train]
#
# The data go to OUT/data, where several runs share them, even at the same time; checkpoints, scores
# and the model folder go to OUT/NAME. If interrupted, run it again to resume; more epochs go on with
# a finished run. Without a GPU, the CPU is used.
#
#   --name NAME           folder of this run (default: ARCH-seedSEED)
#   --seed N              seed of fairseq-train (1)
#   --epochs N            passes over the training data (12)
#   --average N           number of last epoch checkpoints to average (5)
#   --tokens-per-batch N  tokens per side and update, over all GPUs (default: 25000)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (default: 3584)
#   --gpus N              GPUs on this node (default: all visible ones)
#   --fp32                on GPUs, too, instead of fp16
#   --cpu                 one process without GPU
#   --beam N              beam size (default: 4)
#   --lenpen X            length penalty (default: 0.6)
#   --max-tokens N        tokens translated at once (default: 8000)
#   --compound-split      also print compound-split BLEU, of text in Moses' tokens
#   --bleu-tokenizer NAME  sacreBLEU's tokeniser (default: by the target language)
#   --comet MODEL         also COMET: a checkpoint, or a name to download; needs unbabel-comet
#   --about TEXT          a sentence on the data, for the card of the model
#   --user-dir DIR        the plug-in (default: fairseq_posenc of this checkout)
#   options of prepare.sh

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
parse "$@"
# shellcheck source=../common/cluster.sh
. "$COMMON/cluster.sh"

KEPT=10 # epoch checkpoints to keep, so that --average can be changed afterwards
((AVERAGE <= (EPOCHS < KEPT ? EPOCHS : KEPT))) ||
    die "--average $AVERAGE: there are $EPOCHS epochs, and the last $KEPT checkpoints are kept"
NAME=${NAME:-$ARCH-seed$SEED}
[[ $NAME != data ]] || die "--name data: is the folder of the data; give another name"
TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
mapfile -t OPTIONS < <(options_of "$RECIPE/prepare.sh")
pass PREPARE "${OPTIONS[@]}"
pass TRAIN --tokens-per-batch --tokens-per-gpu --fp32 --user-dir --dry-run
pass EVALUATE --beam --lenpen --max-tokens --compound-split --bleu-tokenizer --comet --about \
    --user-dir --dry-run
((CPU)) || GPUS=${GPUS:-$(visible_gpus)}
if ((CPU)) || [[ $GPUS == 0 ]]; then TRAIN+=(--cpu) EVALUATE+=(--cpu); else TRAIN+=(--gpus "$GPUS"); fi
((!SETTINGS)) || exec "$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" "${PREPARE[@]}"
alone "$OUT/$NAME"

if ((DRY_RUN)); then # nothing is written that the scripts below could read
    TEXT_SETTINGS=$("$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" "${PREPARE[@]}" --settings)
    export TEXT_SETTINGS
    "$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" "${PREPARE[@]}" --dry-run
else
    fairseq-posenc alone "$OUT/data" --waits -- \
        "$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" "${PREPARE[@]}"
fi
"$RECIPE/train.sh" "$ARCH" "$OUT/data/data-bin" --save-dir "$OUT/$NAME" --epochs "$EPOCHS" \
    --seed "$SEED" --keep-epochs "$KEPT" "${TRAIN[@]}" -- "${EXTRA[@]}"
# An earlier command may have trained longer.
"$RECIPE/evaluate.sh" "$OUT/data/data-bin" "$OUT/$NAME" --results "$OUT/$NAME" \
    --average "$AVERAGE" --last-epoch "$EPOCHS" "${EVALUATE[@]}"
