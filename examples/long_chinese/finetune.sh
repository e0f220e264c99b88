#!/usr/bin/env bash
# CAIL2019-SCM, RoFormer's Table 5: which of two cases is more similar to a third.
#
#   finetune.sh DATA CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# DATA is the folder cail that `examples/reading/prepare.sh cail` made, CHECKPOINT the result of
# train.sh. The model is fine-tuned at each length and with each seed by examples/reading/finetune.sh,
# and every run is scored at all lengths, also at those that it was not trained on, as far as the
# model accepts them. Runs go to OUT/NAME-LENGTH/cail.
#
#   --name NAME           name of the model in the tables (default: the folder of CHECKPOINT)
#   --lengths "N ..."     lengths of fine-tuning, of the two cases together (512 1024)
#   --scored "N ..."      lengths of scoring (default: those of fine-tuning)
#   options of ../reading/finetune.sh --lr --seeds --epochs --batch --cpu --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
DATA=$(absolute "$DATA") OUT=$(absolute "$OUT")
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")} SCORED=${SCORED:-$LENGTHS}
((DRY_RUN)) || [[ -f $DATA/task && $(<"$DATA/task") == "cail 2" ]] ||
    die "$DATA: is not the data of CAIL; give what examples/reading/prepare.sh cail made"
alone "$OUT/$NAME-${LENGTHS%% *}" # others may be at work on other models and lengths
pass OPTIONS --lr --seeds --epochs --batch --cpu --dry-run
pass DEVICE --cpu

for length in $LENGTHS; do
    "$RECIPE/../reading/finetune.sh" "$DATA" "$CHECKPOINT" "$OUT" \
        --name "$NAME-$length" --user-dir "$USER_DIR" "${OPTIONS[@]}" -- \
        --max-positions "$length" --max-option-length $((length / 2)) "${EXTRA[@]}"
    for log in "$OUT/$NAME-$length"/cail/lr*-seed*/train.log; do
        [[ -f $log ]] || continue # a dry run
        STEPS=${log%/*}
        find "$STEPS" -name 'score-*.log' ! -newer "$log" -delete # of a training before this one
        for scored in $SCORED; do
            step "score-$scored" --waits --inputs "$log" --data "$DATA" \
                --log "$STEPS/score-$scored.log" -- \
                fairseq-validate "$DATA" --user-dir "$USER_DIR" --path "$STEPS/checkpoint_best.pt" \
                --task sentence_ranking --num-classes 2 --valid-subset valid,valid1 --batch-size 8 \
                --required-batch-size-multiple 1 --log-format simple --model-overrides \
                "{'max_positions': $scored, 'max_option_length': $((scored / 2))}" "${DEVICE[@]}"
        done
    done
done
((DRY_RUN)) || fairseq-posenc script "$RECIPE/tables.py" "$OUT"
