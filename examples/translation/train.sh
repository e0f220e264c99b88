#!/usr/bin/env bash
# Train any architecture for translation, including fairseq's own, with sizes for Multi30k and a CPU.
#   train.sh ARCH DATA SAVE_DIR [flags of fairseq-train, which win]
# If the script is started again, also with a larger --max-epoch, training resumes.
set -euo pipefail
ARCH=${1:?an architecture} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
mkdir -p "$SAVE_DIR"

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --task translation --arch "$ARCH" --share-all-embeddings --dropout 0.2 \
    --encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
    --decoder-layers 3 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
    --lr 3e-3 --lr-scheduler inverse_sqrt --warmup-updates 1000 --warmup-init-lr 1e-7 \
    --max-tokens 2048 --required-batch-size-multiple 1 --num-workers 0 --max-epoch 12 --seed 1 \
    --keep-last-epochs 10 --update-epoch-batch-itr True \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:4}"
