#!/usr/bin/env bash
# Train a model on short samples, or continue training on longer ones, with the attention or positions of SYSTEM.
#   [SHORT=512] [WINDOW=512] [BLOCK=64] [PRECISION=--fp16] train.sh language|masked SYSTEM LENGTH DATA SAVE_DIR START [flags]
# SYSTEM: rotary (as it is), base, yarn, linear, ntk, llama3, local, bigbird, favor, memory (language models),
# or full, which keeps the model's own encoding. START is the checkpoint to continue from, or none for a new model.
# [flags] are those of fairseq-train, and win. An update has 131,072 tokens on 8 GPUs.
set -euo pipefail
PART=${1:?language or masked} SYSTEM=${2:?a system} LENGTH=${3:?tokens of a sample} DATA=${4:?the data-bin of prepare.sh}
SAVE_DIR=${5:?a folder for checkpoints} START=${6:?a checkpoint, or none}
SHORT=${SHORT:-512} WINDOW=${WINDOW:-512} BLOCK=${BLOCK:-64} PRECISION=${PRECISION---fp16}
SAMPLE=$LENGTH UPDATES=2000 MODEL=() ROTARY=(--position-encoding rotary)
die() { echo "train.sh: $*" >&2; exit 1; }

case $PART in
    language) KIND=(--task language_modeling --criterion cross_entropy --sample-break-mode none --lr 6e-4 --max-target-positions "$LENGTH")
        SIDE=decoder ARCH=posenc_lm GLOBAL=() ;;
    masked) KIND=(--task masked_lm --criterion masked_lm --sample-break-mode complete --lr 1e-4 --max-positions "$LENGTH")
        SIDE=encoder ARCH=posenc_masked_lm GLOBAL=(--local-global-tokens 1) ;; # all tokens see [CLS]
    *) die "$PART: expected language or masked" ;;
esac
case $SYSTEM in
    rotary) WAY=() ;;
    full) WAY=() ROTARY=() ;;
    base) WAY=(--rotary-base 160000) ;; # ModernBERT's base for 8,192 tokens
    linear | ntk | yarn | llama3)
        WAY=(--rotary-scaling "$SYSTEM" --rotary-original-length "$SHORT" --rotary-scaling-factor $((LENGTH / SHORT))) ;;
    local) WAY=(--attention local --local-window "$WINDOW" "${GLOBAL[@]}") ;;
    bigbird) WAY=(--attention bigbird --bigbird-block-size "$BLOCK") ;;
    favor) WAY=(--attention favor --linear-rotary inputs) ;; # estimates the short model's attention
    memory) # segments of the short length, and a memory for the rest
        [[ $PART == language ]] || die "memory: is for language models only"
        SAMPLE=$SHORT WAY=(--task language_modeling_with_memory --memory-length $((LENGTH - SHORT))) ;;
    *) die "$SYSTEM: expected rotary, full, base, linear, ntk, yarn, llama3, local, bigbird, favor or memory" ;;
esac
if [[ $START == none ]]; then
    UPDATES=20000 MODEL=(--arch "$ARCH" "--$SIDE-layers" 12 "--$SIDE-embed-dim" 768 "--$SIDE-ffn-embed-dim" 3072
        "--$SIDE-attention-heads" 12)
else
    FLAGS=$(fairseq-posenc model-flags "$START") # the model's architecture and shape
    eval "MODEL=($FLAGS)"
    MODEL+=(--finetune-from-model "$START")
fi
mkdir -p "$SAVE_DIR"

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    "${MODEL[@]}" "${KIND[@]}" "${ROTARY[@]}" "${WAY[@]}" --tokens-per-sample "$SAMPLE" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 \
    --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates $((UPDATES / 100)) --max-update "$UPDATES" \
    --batch-size $((16384 / SAMPLE)) --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval 1000000 \
    --validate-interval 1000000 --save-interval-updates $((UPDATES / 10)) --keep-interval-updates 1 \
    --update-epoch-batch-itr True --seed 1 ${PRECISION:+"$PRECISION"} --log-format simple --log-interval 100 \
    --log-file "$SAVE_DIR/train.log" "${@:7}"
