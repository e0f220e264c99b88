#!/usr/bin/env bash
# Give a trained model another position encoding, train it further, and print the losses.
#   [PART=all] [UPDATES=1000] [OVERRIDES=TEXT] run.sh ENCODING CHECKPOINT DATA SAVE_DIR [flags of fairseq-train, which win]
# CHECKPOINT is a translation model, masked language model or language model of this plug-in or of fairseq,
# DATA its training data. PART is what is trained: all, attention (with its layer norms and the encoding), or
# lora (low-rank matrices beside the attention's projections). OVERRIDES: "{'arch': 'transformer'}" for a fairseq
# model whose architecture another plug-in registers. If the script is started again, training resumes.
set -euo pipefail
ENCODING=${1:?a position encoding} CHECKPOINT=${2:?a checkpoint} DATA=${3:?a data folder} SAVE_DIR=${4:?a folder for checkpoints}
UPDATES=${UPDATES:-1000} OVERRIDES=${OVERRIDES:-} DEVICE=() TASK=translation
USER_DIR=$(fairseq-posenc path)
case ${PART:=all} in
    all) START=(--finetune-from-model "$CHECKPOINT") ;;
    attention) START=(--finetune-from-model "$CHECKPOINT" --train-only attention) ;;
    lora) START=(--lora-base "$CHECKPOINT" --lora-rank 8 --lora-layers 'q_proj,k_proj,v_proj,out_proj') ;;
    *) echo "run.sh: PART=$PART: expected all, attention or lora" >&2 && exit 1 ;;
esac
# The model's shape, task and loss as flags.
FLAGS=$(fairseq-posenc model-flags "$CHECKPOINT" --position-encoding "$ENCODING" ${OVERRIDES:+--model-overrides "$OVERRIDES"})
eval "MODEL=($FLAGS)"
for ((n = 0; n < ${#MODEL[@]}; n++)); do [[ ${MODEL[n]} != --task ]] || TASK=${MODEL[n + 1]}; done
[[ " ${*:5} " != *" --cpu "* ]] || DEVICE=(--cpu)
mkdir -p "$SAVE_DIR"

if [[ ! -e $SAVE_DIR/original.log ]]; then
    fairseq-validate "$DATA" --user-dir "$USER_DIR" --task "$TASK" --path "$CHECKPOINT" --valid-subset valid --max-tokens 4096 \
        ${OVERRIDES:+--model-overrides "$OVERRIDES"} --log-format json "${DEVICE[@]}" >"$SAVE_DIR/original.part" 2>&1 ||
        { tail -n 5 "$SAVE_DIR/original.part" >&2 && exit 1; }
    mv "$SAVE_DIR/original.part" "$SAVE_DIR/original.log"
fi
fairseq-train "$DATA" --user-dir "$USER_DIR" --save-dir "$SAVE_DIR" "${MODEL[@]}" "${START[@]}" \
    --validate-at-start --validate-interval-updates 50 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr 5e-4 --lr-scheduler polynomial_decay \
    --total-num-update "$UPDATES" --warmup-updates $(((UPDATES + 9) / 10)) --max-update "$UPDATES" \
    --max-tokens 4096 --required-batch-size-multiple 1 --seed 1 --no-epoch-checkpoints --update-epoch-batch-itr True \
    --log-format json --log-file "$SAVE_DIR/train.log" "${@:5}"
python "$(dirname "${BASH_SOURCE[0]}")/losses.py" "$SAVE_DIR"
