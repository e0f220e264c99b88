#!/usr/bin/env bash
# Translation: one architecture from parallel text to scores, by prepare.sh, train.sh, evaluate.sh.
#
#   run.sh TEXTS OUT ARCH --source-lang LANG --target-lang LANG [options] [-- flags for fairseq-train]
#
# The data go to OUT/data, where several runs share them, even at the same time; checkpoints, scores
# and the model folder go to OUT/NAME. More epochs go on with a finished run. Without a GPU, the CPU is
# used.
#
#   --name NAME           folder of this run (default: ARCH-seedSEED)
#   --epochs N            passes over the training data (12)
#   --average N           number of last epoch checkpoints to average (5)
#   options of train.sh --seed --tokens-per-batch --tokens-per-gpu --gpus --fp32 --cpu --user-dir
#   options of evaluate.sh --beam --lenpen --max-tokens --compound-split --bleu-tokenizer --comet --about
#   options of prepare.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/cluster.sh"

KEPT=10 # epoch checkpoints to keep, so that --average can be changed afterwards
((AVERAGE <= (EPOCHS < KEPT ? EPOCHS : KEPT))) ||
    die "--average $AVERAGE: there are $EPOCHS epochs, and the last $KEPT checkpoints are kept"
NAME=${NAME:-$ARCH-seed$SEED}
[[ $NAME != data ]] || die "--name data: is the folder of the data; give another name"
TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
mapfile -t OPTIONS < <(options_of "$RECIPE/prepare.sh")
pass PREPARE "${OPTIONS[@]}" --dry-run
pass TRAIN --tokens-per-batch --tokens-per-gpu --fp32 --user-dir --dry-run
pass EVALUATE --beam --lenpen --max-tokens --compound-split --bleu-tokenizer --comet --about \
    --user-dir --dry-run
((CPU)) || GPUS=${GPUS:-$(visible_gpus)}
if ((CPU)) || [[ $GPUS == 0 ]]; then TRAIN+=(--cpu) EVALUATE+=(--cpu); else TRAIN+=(--gpus "$GPUS"); fi
PREPARE=("$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" "${PREPARE[@]}")
((!SETTINGS)) || exec "${PREPARE[@]}"
alone "$OUT/$NAME"

# In a dry run nothing is written that the scripts below could read.
((!DRY_RUN)) || TEXT_SETTINGS=$("${PREPARE[@]}" --settings)
export TEXT_SETTINGS
shared "$OUT/data" "${PREPARE[@]}"
"$RECIPE/train.sh" "$ARCH" "$OUT/data/data-bin" --save-dir "$OUT/$NAME" --epochs "$EPOCHS" \
    --seed "$SEED" --keep-epochs "$KEPT" "${TRAIN[@]}" -- "${EXTRA[@]}"
# An earlier command may have trained longer.
"$RECIPE/evaluate.sh" "$OUT/data/data-bin" "$OUT/$NAME" --results "$OUT/$NAME" \
    --average "$AVERAGE" --last-epoch "$EPOCHS" "${EVALUATE[@]}"
