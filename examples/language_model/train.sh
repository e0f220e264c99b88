#!/usr/bin/env bash
# Train a language model with a position encoding, with the settings of GPT-3's 125 M model, as in RoFormer's section 4.6.
#   [UPDATES=55000] [PRECISION=--fp16] train.sh ENCODING DATA SAVE_DIR [flags of fairseq-train, which win]
# The flags are for 8 GPUs and 524,288 tokens per update; README.md has flags for other machines and models.
# If the script is started again, training resumes.
set -euo pipefail
ENCODING=${1:?a position encoding} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
UPDATES=${UPDATES:-55000} PRECISION=${PRECISION---fp16}
mkdir -p "$SAVE_DIR"
EVERY=$(((UPDATES + 99) / 100)) && KEPT=$((EVERY * ((UPDATES + 10 * EVERY - 1) / (10 * EVERY)))) # a tenth, as a multiple of EVERY

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --task language_modeling --criterion cross_entropy --arch roformer_lm_small --position-encoding "$ENCODING" \
    --tokens-per-sample 2048 --sample-break-mode none --dropout 0 --attention-dropout 0 \
    --optimizer adam --adam-betas '(0.9, 0.95)' --adam-eps 1e-8 --weight-decay 0.1 --clip-norm 1.0 \
    --lr 6e-4 --lr-scheduler cosine --min-lr 6e-5 --warmup-init-lr 1e-7 --warmup-updates $(((UPDATES + 99) / 100)) \
    --batch-size 8 --update-freq 4 --required-batch-size-multiple 1 --max-update "$UPDATES" \
    --save-interval-updates "$EVERY" --keep-interval-updates 1 --keep-interval-updates-pattern "$KEPT" \
    --no-epoch-checkpoints --save-interval 1000000 --validate-interval 1000000 --update-epoch-batch-itr True \
    --seed 1 ${PRECISION:+"$PRECISION"} --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:4}"
