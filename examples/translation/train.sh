#!/usr/bin/env bash
# Translation: train any architecture on one node (or, with --nodes, on several).
#
#   train.sh ARCH DATA [options] [-- flags for fairseq-train]
#
# ARCH is any architecture for translation (roformer_base, transformer, ...), DATA the data-bin folder
# of prepare.sh. The defaults are those of Vaswani et al.'s base model.
#
#   --save-dir DIR        checkpoints and train.log (default: RUNS/ARCH)
#   --runs DIR            the folder RUNS (runs/translation)
#   --updates N           length of the training (default: 100000)
#   --epochs N            length in passes over the data, instead
#   --seed N              seed of fairseq-train (1)
#   --tokens-per-batch N  tokens per side and update, over all GPUs (25000)
#   --tokens-per-gpu N    maximum tokens per GPU and pass; the rest of the batch is gathered over
#                         several passes, --update-freq (3584)
#   --keep-epochs N       epoch checkpoints to keep (10)
#   --save-every N        also write a checkpoint every N updates
#   --keep-updates N      how many of these to keep (20)
#   --fp32                on GPUs, too, instead of fp16
#   options of ../common/cluster.sh
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
. "$COMMON/translation.sh"
parse "$@"
. "$COMMON/cluster.sh"

[[ -z $UPDATES || -z $EPOCHS ]] || die "--epochs $EPOCHS: give it or --updates"
cluster_flags
# In release 0.12.2, fairseq's own encoder layers have parameters that no update uses. The default,
# pytorch_ddp, stops at the second update then.
if ((WORLD > 1)) && [[ $(release_of fairseq) == 0.12.2 && $(fairseq-posenc list) != *"  $ARCH "* ]]; then
    CLUSTER+=(--ddp-backend legacy_ddp)
fi
read_settings "$DATA"
SAVE_DIR=${SAVE_DIR:-$RUNS/$ARCH}

# The fewest passes whose share of the batch fits on a GPU, then that share.
BATCH=$TOKENS_PER_BATCH LIMIT=$TOKENS_PER_GPU
PASSES=$(((BATCH + WORLD * LIMIT - 1) / (WORLD * LIMIT)))
SHARE=$(((BATCH + WORLD * PASSES / 2) / (WORLD * PASSES)))
((SHARE > 250 || CPU)) ||
    die "--tokens-per-batch $BATCH: leaves $SHARE tokens for each of $WORLD GPUs; sentences have up to 250"
alone "$SAVE_DIR"
log "$WORLD processes x $SHARE tokens x $PASSES passes = $((WORLD * SHARE * PASSES)) tokens an update"

SHARED=--share-all-embeddings
[[ $VOCABULARY == joint ]] || SHARED=--share-decoder-input-output-embed
LENGTH=(--max-update "${UPDATES:-100000}")
[[ -z $EPOCHS ]] || LENGTH=(--max-epoch "$EPOCHS")
TIMEFORMAT="training took %R s (processor time %U s)"
# the error of a training that fails is the last line, without a time below it
time { train "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" \
    --task translation ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"} \
    --arch "$ARCH" "$SHARED" --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0 --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 --warmup-updates 4000 \
    --max-tokens "$SHARE" --update-freq "$PASSES" --required-batch-size-multiple 1 \
    "${LENGTH[@]}" --seed "$SEED" --keep-last-epochs "$KEEP_EPOCHS" \
    ${SAVE_EVERY:+--save-interval-updates "$SAVE_EVERY" --keep-interval-updates "$KEEP_UPDATES"} \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
    "${CLUSTER[@]}" "${EXTRA[@]}" || { STATUS=$? TIMEFORMAT=; exit "$STATUS"; }; }
