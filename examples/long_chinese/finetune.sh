#!/usr/bin/env bash
# CAIL2019-SCM, RoFormer's Table 5: which of two cases is more similar to a third.
#
#   finetune.sh DATA CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# DATA is the folder cail that `examples/reading/prepare.sh cail` made, CHECKPOINT the result of
# train.sh. The model is fine-tuned at each length and with each seed by examples/reading/finetune.sh,
# and every run is scored at all lengths, also at those that it was not trained on, as far as the
# model accepts them. Runs go to OUT/NAME-LENGTH/cail. Stopped and started again, it continues
# with what is not done.
#
#   --name NAME           name of the model in the tables (the folder of CHECKPOINT)
#   --lengths "N ..."     lengths of fine-tuning, of the two cases together (512 1024)
#   --scored "N ..."      lengths of scoring (those of fine-tuning)
#   --lr "X ..."          learning rates (2e-5)
#   --seeds "N ..."       seeds (1 2 3)
#   --epochs N            passes over the training data (3)
#   --batch N             triples per update (32)
#   --cpu                 without GPU or fp16
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" CHECKPOINT="" OUT="" NAME="" LENGTHS="512 1024" SCORED="" OPTIONS=() DEVICE=() USER_DIR=""
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; OPTIONS+=("$1"); shift ;;
        --cpu) OPTIONS+=("$1") DEVICE=("$1"); shift ;;
        --name) NAME=$(value "$@"); shift 2 ;;
        --lengths) LENGTHS=$(value "$@"); shift 2 ;;
        --scored) SCORED=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --lr | --seeds | --epochs | --batch) OPTIONS+=("$1" "$(value "$@")"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA CHECKPOINT OUT; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the folder cail, the checkpoint and the output folder; see --help"
SCORED=${SCORED:-$LENGTHS}
for length in $LENGTHS; do whole_number --lengths "$length"; done
for length in $SCORED; do whole_number --scored "$length"; done
DATA=$(absolute "${DATA%/}") OUT=$(absolute "$OUT")
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")}
plain_name --name "$NAME"
((DRY_RUN)) || [[ -f $DATA/task && $(<"$DATA/task") == "cail 2" ]] ||
    die "$DATA: is not the data of CAIL; give what examples/reading/prepare.sh cail made"
USER_DIR=${USER_DIR:-$(plugin_dir)}

forget_scores() {
    run rm -f "$1"/score-*.log
}

# Score run $1 at all lengths, and forget the scores of an earlier training in its folder.
score() {
    local run=$1 name=${1##*/} length begun
    STEPS=${run%/*}/steps
    hold "$run" wait
    chain "$(sha256sum <"$run/train.log")"$'\n'
    step "forget-scores-$name" -- forget_scores "$run"
    begun=$STEP_CHAIN
    for length in $SCORED; do
        chain "$begun"
        step "score-$length-$name" "$run/score-$length.log" -- logged "$run/score-$length.log" \
            fairseq-validate "$DATA" --user-dir "$USER_DIR" --path "$run/checkpoint_best.pt" \
            --task sentence_ranking --num-classes 2 --valid-subset valid,valid1 --batch-size 8 \
            --required-batch-size-multiple 1 --log-format simple \
            --model-overrides "{'max_positions': $length, 'max_option_length': $((length / 2))}" \
            ${DEVICE[@]+"${DEVICE[@]}"}
    done
    release
}

use_data "$DATA"
for length in $LENGTHS; do
    interruptible "$RECIPE/../reading/finetune.sh" "$DATA" "$CHECKPOINT" "$OUT" \
        --name "$NAME-$length" --user-dir "$USER_DIR" ${OPTIONS[@]+"${OPTIONS[@]}"} -- \
        --max-positions "$length" --max-option-length $((length / 2)) "$@" || exit
    for run in "$OUT/$NAME-$length"/cail/lr*-seed*/; do
        [[ ! -f $run/train.log ]] || score "${run%/}"
    done
done
((DRY_RUN)) || python "$RECIPE/lengths.py" "$OUT"
