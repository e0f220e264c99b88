# shellcheck shell=bash
# What the train.sh of bert_pretraining and language_model share; sourced after `parse`.

. "$COMMON/cluster.sh"
. "$COMMON/tokens.sh"

# Train in SAVE_DIR on DATA for UPDATES, in PASSES of an update, and write the model folder
# SAVE_DIR/model, whose card says $1. The other flags for fairseq-train follow. Epochs are irrelevant
# here: between two checkpoints, a small corpus has many and a large one less than one.
pretrain() {
    local model=(--replaces "$SAVE_DIR/model" --known-by model.json --option=--save-dir) flags=()
    need "$DATA/dict.txt" "$DATA: no dict.txt there; give the data-bin folder that prepare.sh made"
    alone "$SAVE_DIR"
    ((${NODE_RANK:-0})) || step model --check "${model[@]}"
    train "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" "${@:2}" --max-update "$UPDATES" \
        --update-freq "$PASSES" --required-batch-size-multiple 1 --no-epoch-checkpoints \
        --save-interval 1000000 --validate-interval 1000000 \
        --save-interval-updates "$(fraction "$UPDATES" 100)" --keep-interval-updates 1 \
        --keep-interval-updates-pattern "$(fraction "$UPDATES" 10)" \
        --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
        "${CLUSTER[@]}" "${EXTRA[@]}"
    ((!${NODE_RANK:-0})) || return 0
    [[ ${USER_DIR##*/} == fairseq_posenc ]] || flags+=(--user-dir "$USER_DIR")
    step model --inputs "$SAVE_DIR/checkpoint_last.pt" --data "$DATA" "${model[@]}" -- \
        fairseq-posenc pack "$SAVE_DIR/checkpoint_last.pt" "$(part "$SAVE_DIR/model")" --data "$DATA" \
        --text-of "$DATA" --ctranslate2 no "${flags[@]}" --about "$1"
}
