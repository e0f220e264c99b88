#!/usr/bin/env bash
# Give a trained model another position encoding, and see what that costs.
#
#   swap.sh CHECKPOINT DATA OUT [options] [-- flags for fairseq-train]
#
# CHECKPOINT is a translation model, masked language model or language model of this plug-in or of
# fairseq (transformer, transformer_lm, roberta), DATA the data folder that it was trained on. Shape,
# task and loss are the checkpoint's. It ends with a table: the validation loss of the model as it is,
# at update 0 with the new encoding, and later; the update at which the loss is won back.
#
#   --encoding NAME       the new --position-encoding (rotary)
#   --part all|attention|lora   what is trained: everything, every attention with its layer norm and
#                         the encoding, or low-rank matrices beside its projections (all)
#   --rank N              rank of these matrices (8)
#   --updates N           updates (1000)
#   --validate-every N    updates between two validations (50)
#   --lr X                the highest learning rate, reached after a tenth of the updates (5e-4)
#   --max-tokens N        tokens of a batch, also of a validation (4096)
#   --seed N              seed of fairseq-train (1)
#   --model-overrides TEXT   for a model of fairseq whose architecture is registered elsewhere, such as
#                         IndicTrans2's: "{'arch': 'transformer'}"
#   options of ../common/cluster.sh --cpu
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

need "$CHECKPOINT" "$CHECKPOINT: no such checkpoint"
need "$DATA/" "$DATA: no such data folder"
DEVICE=() START=(--finetune-from-model "$CHECKPOINT")
((!CPU)) || DEVICE=(--cpu)
case $PART in
    all) ;;
    attention) START+=(--train-only attention) ;;
    lora) START=(--lora-base "$CHECKPOINT" --lora-rank "$RANK" --lora-layers "q_proj,k_proj,v_proj,out_proj") ;;
esac
[[ $PART == lora ]] || useless "without --part lora" --rank
MODEL=() OVERRIDES=()
[[ -z $MODEL_OVERRIDES ]] || OVERRIDES=(--model-overrides "$MODEL_OVERRIDES")
model_flags MODEL "$CHECKPOINT" --position-encoding "$ENCODING"
[[ " ${MODEL[*]} " =~ " --task "([A-Za-z_]+)" " ]] && TASK=${BASH_REMATCH[1]}
alone "$OUT"

step original --inputs "$CHECKPOINT" --data "$DATA" --log "$OUT/original.log" -- \
    fairseq-validate "$DATA" --user-dir "$USER_DIR" --task "$TASK" --path "$CHECKPOINT" \
    --valid-subset valid --max-tokens "$MAX_TOKENS" --num-workers 0 --log-format json "${DEVICE[@]}" "${OVERRIDES[@]}"
train "$OUT" "$DATA" --user-dir "$USER_DIR" "${MODEL[@]}" "${START[@]}" \
    --validate-at-start --validate-interval-updates "$VALIDATE_EVERY" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr "$LR" \
    --lr-scheduler polynomial_decay --total-num-update "$UPDATES" \
    --warmup-updates "$(fraction "$UPDATES" 10)" --max-update "$UPDATES" \
    --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 --num-workers 0 --seed "$SEED" \
    --no-epoch-checkpoints --log-format json --log-file "$OUT/train.log" "${DEVICE[@]}" "${EXTRA[@]}" >&$((2 - DRY_RUN))
run fairseq-posenc script "$RECIPE/losses.py" "$OUT"
