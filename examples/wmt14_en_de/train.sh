#!/usr/bin/env bash
# Train any architecture for translation like Vaswani et al.'s base model, with 25,000 tokens per update.
#   [PRECISION=--fp16] train.sh ARCH DATA SAVE_DIR [flags of fairseq-train, which win]
# The flags are for 8 GPUs; README.md has flags for other machines. If started again, training resumes.
set -euo pipefail
ARCH=${1:?an architecture} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
PRECISION=${PRECISION---fp16}
mkdir -p "$SAVE_DIR"

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --task translation --source-lang en --target-lang de --arch "$ARCH" --share-all-embeddings --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 \
    --max-tokens 3125 --update-freq 1 --required-batch-size-multiple 1 --max-update 100000 ${PRECISION:+"$PRECISION"} \
    --save-interval-updates 1250 --keep-interval-updates 20 --keep-last-epochs 5 --update-epoch-batch-itr True \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:4}"
