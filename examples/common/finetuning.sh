# shellcheck shell=bash
# What the finetune.sh of glue and reading share; sourced after steps.sh and `parse`.

# The flags of fine-tuning from CHECKPOINT that are the same for all tasks.
TUNING=(--arch posenc_masked_lm --restore-file "$CHECKPOINT" --reset-optimizer --reset-dataloader
    --reset-meters --reset-lr-scheduler --dropout 0.1 --attention-dropout 0.1
    --optimizer adam --lr-scheduler polynomial_decay --maximize-best-checkpoint-metric
    --required-batch-size-multiple 1 --no-epoch-checkpoints --no-last-checkpoints
    --no-save-optimizer-state --distributed-world-size 1 --log-format json --log-interval 100)

# Fine-tune on DATA in folder $1, from the beginning unless it is done; a log gets its final name when
# all is. Flags for fairseq-train follow and, after ++, a command that comes after it.
tune() {
    local STEPS=$1 flags=() after=()
    shift
    while (($#)) && [[ $1 != ++ ]]; do flags+=("$1"); shift; done
    (($# < 2)) || after=('&&' "${@:2}")
    step tune --data "$DATA" --inputs "$CHECKPOINT" --outputs "$STEPS/train.log" -- \
        rm -rf "$STEPS"/{train.log{,.part},checkpoint_best.pt,answers} '&&' \
        fairseq-train "$DATA" --save-dir "$STEPS" --update-epoch-batch-itr True \
        "${TUNING[@]}" "${flags[@]}" --log-file "$STEPS/train.log.part" "${after[@]}" '&&' \
        mv "$STEPS/train.log.part" "$STEPS/train.log"
}
