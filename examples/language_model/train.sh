#!/usr/bin/env bash
# Language models: train one with the position encoding of your choice.
#
#   train.sh ENCODING DATA [options] [-- flags for fairseq-train]
#
# ENCODING is a value of --position-encoding (`fairseq-posenc list`), such as rotary, several joined
# with +, or gau: gated units with rotary. DATA is the data-bin folder of prepare.sh. The model is GPT-3's
# of 125 M parameters (small) or of 1.3 B (medium), as in RoFormer 4.6 and 4.7; flags after -- override
# its hyper-parameters.
#
#   --size small|medium   55k updates of 0.5 M tokens, or 8k of 1 M (small)
#   --save-dir DIR        checkpoints, train.log and at the end the model folder, model
#                         (default: runs/language_model/ENCODING-seedN, ENCODING-medium-seedN)
#   --seed N              seed of fairseq-train (1)
#   --updates N           number of updates, instead of the paper's: the first hundredth is
#                         warm-up, a checkpoint is kept at every tenth
#   --length N            tokens per sample (2048)
#   --batch N             tokens per update, over all GPUs (default: 524288, of medium 1048576)
#   --tokens-per-gpu N    maximum tokens per GPU and pass; the rest of the batch is gathered over
#                         several passes, --update-freq (default: 16384, of medium 8192)
#   --adaptive N,N        adaptive input and softmax, tied: cutoffs of the clusters of rare
#                         words, such as 20000,60000, instead of a full softmax
#   options of ../common/cluster.sh
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/pretraining.sh"

# RoFormer, Table 6: updates; GPT-3, Table 2.1: tokens in an update, learning rate. The last column
# is the tokens that one GPU computes at once, for its memory.
case $SIZE in
    small) NUMBERS=(55000 524288 6e-4 6e-5 16384) ;;
    *) NUMBERS=(8000 1048576 2e-4 2e-5 8192) ;;
esac
UPDATES=${UPDATES:-${NUMBERS[0]}} BATCH=${BATCH:-${NUMBERS[1]}}
LIMIT=${TOKENS_PER_GPU:-${NUMBERS[4]}}
MODEL=(--arch "roformer_lm_$SIZE" --position-encoding "$ENCODING")
if [[ $ENCODING == gau ]]; then
    [[ $SIZE == small ]] || die "--size $SIZE: has no model of gated units; drop it, or gau"
    MODEL=(--arch gau_lm_small)
fi
[[ $ENCODING =~ ^[a-z0-9_]+(\+[a-z0-9_]+)*$ ]] ||
    die "$ENCODING: expected gau, or encodings of \`fairseq-posenc list\` joined with +"
((BATCH % LENGTH == 0)) || die "--batch $BATCH: expected a multiple of --length $LENGTH"
((LIMIT >= LENGTH)) || die "--tokens-per-gpu $LIMIT: a sample has --length $LENGTH"
CRITERION=(--criterion cross_entropy)
if [[ -n $ADAPTIVE ]]; then
    # An update uses the clusters of the words in its batch alone: adaptive_loss refuses pytorch_ddp,
    # the default, even with a single process.
    CRITERION=(--criterion adaptive_loss --ddp-backend legacy_ddp
        --adaptive-input --adaptive-input-cutoff "$ADAPTIVE"
        --adaptive-softmax-cutoff "$ADAPTIVE" --tie-adaptive-weights --tie-adaptive-proj)
fi
cluster_flags
NAME=$ENCODING
[[ $SIZE == small ]] || NAME+=-$SIZE
SAVE_DIR=${SAVE_DIR:-runs/language_model/$NAME-seed$SEED}
equal_shares "--batch $BATCH" $((BATCH / LENGTH)) $((LIMIT / LENGTH))
pretrain "Trained on $DATA." --task language_modeling "${MODEL[@]}" \
    --tokens-per-sample "$LENGTH" --sample-break-mode none "${CRITERION[@]}" \
    --dropout 0 --attention-dropout 0 \
    --optimizer adam --adam-betas '(0.9, 0.95)' --adam-eps 1e-8 --weight-decay 0.1 \
    --clip-norm 1.0 --lr "${NUMBERS[2]}" --lr-scheduler cosine --min-lr "${NUMBERS[3]}" \
    --warmup-init-lr 1e-7 --warmup-updates "$(fraction "$UPDATES" 100)" --batch-size "$SHARE" --seed "$SEED"
