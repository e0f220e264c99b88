#!/usr/bin/env bash
# Translation: one architecture from parallel text to scores, by prepare.sh, train.sh, evaluate.sh.
#
#   run.sh TEXTS OUT ARCH --source-lang LANG --target-lang LANG [options] [-- flags for fairseq-train]
#
# The data go to OUT/data, where several runs share them, even at the same time; checkpoints, scores
# and the model folder go to OUT/NAME. If interrupted, run it again to resume; more epochs go on with
# a finished run. Without a GPU, the CPU is used.
#
#   --name NAME           folder of this run (ARCH-seedSEED)
#   --seed N              seed of fairseq-train (1)
#   --epochs N            passes over the training data (12)
#   --average N           number of last epoch checkpoints to average (5)
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text
#
# Those of prepare.sh: --train NAME, --valid NAME, --test NAME, --tokenizer NAME, --dash-splits,
# --subwords NAME, --sentencepiece-model NAME, --byte-fallback, --character-coverage X,
# --vocabulary NAME, --vocabulary-size N, --bpe-operations N, --learn-from N, --max-length N,
# --ratio R, --no-cleaning, --longest N, --workers N. Of train.sh: --tokens-per-batch N,
# --tokens-per-gpu N, --gpus N, --fp32, --cpu. Of evaluate.sh: --beam N, --lenpen X, --max-tokens N,
# --compound-split, --bleu-tokenizer NAME, --comet MODEL, --about TEXT.

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/cluster.sh
. "$RECIPE/../common/cluster.sh"
# shellcheck source=../common/translation.sh
. "$RECIPE/../common/translation.sh"

TEXTS="" OUT="" ARCH="" PREPARE=() TRAIN=() EVALUATE=() NAME="" SEED=1 EPOCHS=12 AVERAGE=5
KEPT=10 # epoch checkpoints to keep, so that --average can be changed afterwards
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --name) NAME=$(value "$@"); shift 2 ;;
        --seed) SEED=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --average) AVERAGE=$(value "$@"); shift 2 ;;
        --source-lang | --target-lang | --train | --valid | --test | --tokenizer | --subwords | \
            --sentencepiece-model | --character-coverage | --vocabulary | --vocabulary-size | \
            --bpe-operations | --learn-from | --max-length | --ratio | --longest | --workers)
            PREPARE+=("$1" "$(value "$@")"); shift 2 ;;
        --dash-splits | --byte-fallback | --no-cleaning) PREPARE+=("$1"); shift ;;
        --tokens-per-batch | --tokens-per-gpu) TRAIN+=("$1" "$(value "$@")"); shift 2 ;;
        --gpus) GPUS=$(value "$@"); shift 2 ;;
        --cpu) CPU=--cpu; shift ;;
        --fp32) TRAIN+=("$1"); shift ;;
        --beam | --lenpen | --max-tokens | --bleu-tokenizer | --comet | --about)
            EVALUATE+=("$1" "$(value "$@")"); shift 2 ;;
        --compound-split) EVALUATE+=("$1"); shift ;;
        --user-dir) TRAIN+=("$1" "$(value "$@")") EVALUATE+=("$1" "$2"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" TEXTS OUT ARCH; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $ARCH ]] ||
    die "give the folder of the texts, the output folder and the architecture; see --help"
whole_number --seed "$SEED"
whole_number --epochs "$EPOCHS"
whole_number --average "$AVERAGE"
((AVERAGE <= (EPOCHS < KEPT ? EPOCHS : KEPT))) ||
    die "--average $AVERAGE: there are $EPOCHS epochs, and the last $KEPT checkpoints are kept"
NAME=${NAME:-$ARCH-seed$SEED}
plain_name --name "$NAME"
[[ $NAME != data ]] || die "--name data: is the folder of the data; give another name"
need python fairseq-preprocess fairseq-train fairseq-generate

TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
RUN=$OUT/$NAME
if ((DRY_RUN)); then # nothing is written that the scripts below could read
    TEXT_SETTINGS=$("$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" ${PREPARE[@]+"${PREPARE[@]}"} --settings)
    export TEXT_SETTINGS
fi
hold "$RUN"
hold "$OUT/data" wait
with_dry_run "$RECIPE/prepare.sh" "$TEXTS" "$OUT/data" ${PREPARE[@]+"${PREPARE[@]}"}
release

if [[ -z $CPU ]]; then
    GPUS=${GPUS:-$(visible_gpus)}
    if [[ $GPUS == 0 ]]; then CPU=--cpu; else TRAIN+=(--gpus "$GPUS"); fi
fi
[[ -z $CPU ]] || { TRAIN+=(--cpu) && EVALUATE+=(--cpu); }
TRAIN+=(--seed "$SEED" --keep-epochs "$KEPT")
use_data "$OUT/data/data-bin"
same_data --name "$RUN"
# A larger --epochs is allowed.
same_run --name "$RUN" "$ARCH" "${TRAIN[@]}" "$@"
with_dry_run "$RECIPE/train.sh" "$ARCH" "$OUT/data/data-bin" --save-dir "$RUN" \
    --epochs "$EPOCHS" "${TRAIN[@]}" -- "$@"
# An earlier command may have trained longer.
with_dry_run "$RECIPE/evaluate.sh" "$OUT/data/data-bin" "$RUN" --results "$RUN" \
    --average "$AVERAGE" --last-epoch "$EPOCHS" ${EVALUATE[@]+"${EVALUATE[@]}"}
