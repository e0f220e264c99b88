#!/usr/bin/env bash
# Pre-train a Chinese model in the six stages of RoFormer's Table 4; each stage starts from the previous stage's weights.
#   [GPUS=8] [TOKENS=16384] [STAGES="512x256x200000 ..."] [PRECISION=--fp16] train.sh ARCH DATA SAVE_DIR
#   [flags of fairseq-train, which win]
# A stage is: tokens per sample x samples per update x updates. A GPU takes up to TOKENS tokens in a pass; GPUS
# is the total number of processes. SAVE_DIR/stage1 and so on have checkpoints and train.log. If the script
# is started again, training resumes.
set -euo pipefail
ARCH=${1:?an architecture} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
GPUS=${GPUS:-8} TOKENS=${TOKENS:-16384} PRECISION=${PRECISION---fp16} BEFORE=() number=0
STAGES=${STAGES:-512x256x200000 1536x256x12500 256x256x120000 128x512x80000 1536x256x10000 512x512x30000}

for stage in $STAGES; do
    IFS=x read -r length samples updates <<<"$stage"
    passes=1 number=$((number + 1)) folder=$SAVE_DIR/stage$number
    while ((samples % (GPUS * passes) || samples * length > TOKENS * GPUS * passes)); do
        ((++passes <= samples)) || { echo "train.sh: stage $stage: GPUS=$GPUS, TOKENS=$TOKENS do not divide the update into equal passes; change them" >&2; exit 1; }
    done
    mkdir -p "$folder"
    grep -qs 'done training' "$folder/train.log" || fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$folder" \
        --task masked_lm --criterion masked_lm_accuracy --arch "$ARCH" --dropout 0.1 --attention-dropout 0.1 \
        --tokens-per-sample "$length" --sample-break-mode none \
        --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 \
        --lr 1e-5 --lr-scheduler polynomial_decay --warmup-updates $((updates / 100)) --total-num-update "$updates" \
        --batch-size $((samples / GPUS / passes)) --update-freq "$passes" --required-batch-size-multiple 1 --max-update "$updates" \
        --save-interval-updates $(((updates + 99) / 100)) --keep-interval-updates 1 --no-epoch-checkpoints \
        --save-interval 1000000 --validate-interval 1000000 --update-epoch-batch-itr True "${BEFORE[@]}" \
        --seed 1 ${PRECISION:+"$PRECISION"} --log-format json --log-interval 100 --log-file "$folder/train.log" "${@:4}"
    BEFORE=(--finetune-from-model "$folder/checkpoint_last.pt")
done
