#!/usr/bin/env bash
# Pre-train any masked language model on Chinese text, with the settings of the GAU paper's Table 7; whole words are masked.
#   [UPDATES=100000] [PRECISION=--fp16] train.sh ARCH DATA SAVE_DIR [flags of fairseq-train, which win]
# The flags are for 8 GPUs; ../bert_pretraining has flags for other machines. If started again, training resumes.
set -euo pipefail
ARCH=${1:?an architecture} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
UPDATES=${UPDATES:-100000} PRECISION=${PRECISION---fp16} BREAK=$(<"$DATA/sample-break-mode")
mkdir -p "$SAVE_DIR"
EVERY=$(((UPDATES + 99) / 100)) && KEPT=$((EVERY * ((UPDATES + 10 * EVERY - 1) / (10 * EVERY)))) # a tenth, as a multiple of EVERY

exec fairseq-train "$DATA" --user-dir "$(dirname "${BASH_SOURCE[0]}")/whole_words" --save-dir "$SAVE_DIR" \
    --task masked_lm --criterion masked_lm_accuracy --arch "$ARCH" --dropout 0.1 --attention-dropout 0.1 \
    --tokens-per-sample 512 --sample-break-mode "$BREAK" --mask-whole-words --bpe marked_pieces \
    --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 \
    --lr 3e-4 --lr-scheduler polynomial_decay --warmup-updates $((UPDATES / 10)) --total-num-update "$UPDATES" \
    --batch-size 32 --update-freq 1 --required-batch-size-multiple 1 --max-update "$UPDATES" \
    --save-interval-updates "$EVERY" --keep-interval-updates 1 --keep-interval-updates-pattern "$KEPT" \
    --no-epoch-checkpoints --save-interval 1000000 --validate-interval 1000000 --update-epoch-batch-itr True \
    --seed 1 ${PRECISION:+"$PRECISION"} --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:4}"
