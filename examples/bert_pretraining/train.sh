#!/usr/bin/env bash
# Masked language models: pre-train one model of the TUPE paper, RoFormer or RoBERTa.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta,
# DATA the data-bin folder that prepare.sh made. The hyper-parameters are those of a paper;
# flags after -- override them. fairseq-train starts one process per GPU: do not use
# torchrun. Run again with the same --save-dir, it resumes from checkpoint_last.pt.
#
#   --paper PAPER         tupe: Table 1, 1M updates of 256 samples at 1e-4
#                         roformer: 100k updates of 64 samples at 1e-5
#                         roberta: Table 9, 500k updates of 8,192 samples at 6e-4 (4e-4)
#                         roberta-256, roberta-2k, roberta-8k: the three rows of Table 3
#                         (default: roberta for the model roberta, tupe for the others)
#   --size base|large     12 layers of 768 channels, or 24 of 1,024 (base)
#   --save-dir DIR        checkpoints, train.log and at the end the model folder, model
#                         (default: runs/bert_pretraining/MODEL, with -PAPER, -large, -amos ...)
#   --updates N           number of updates, instead of the paper's: warm-up is the same share of
#                         them, a checkpoint is kept at every tenth
#   --batch N             samples per update, over all GPUs, instead of the paper's
#   --format segment-pair|sentence-pair|full-sentences|doc-sentences  what a sample is, as in RoBERTa's
#                         Table 2: the first two with next sentence prediction (full-sentences)
#   --static-masks N      N masks of each sample, in turn, instead of a new one in every epoch
#   --samples-per-gpu N   maximum samples per GPU and pass; the rest of the batch is gathered over
#                         several passes, --update-freq (32)
#   options of ../common/cluster.sh
#   --optimizer adam|amos  the paper's AdamW with linear decay, or amos, for which pip install
#                         pytorch-optimizer, with a constant rate of 1/sqrt(updates) (adam)
#   --user-dir DIR        the plug-in (default: fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
parse "$@"
# shellcheck source=../common/cluster.sh
. "$COMMON/cluster.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"
# shellcheck source=../common/papers.sh
. "$COMMON/papers.sh"

# The --tokens-per-sample among flags for fairseq-train.
tokens_per_sample() {
    local longest=512 previous="" flag
    for flag in "$@"; do
        [[ $previous != --tokens-per-sample ]] || longest=$flag
        [[ $flag != --tokens-per-sample=* ]] || longest=${flag#*=}
        previous=$flag
    done
    [[ $longest =~ ^[1-9][0-9]*$ ]] || die "--tokens-per-sample $longest: expected a whole number"
    printf '%s\n' "$longest"
}

KNOWN="bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta"
[[ " $KNOWN " == *" $MODEL "* ]] || die "$MODEL: unknown model; expected one of $KNOWN"
USUAL_PAPER=tupe STATIC=${STATIC_MASKS:-0} DATA=${DATA%/}
[[ $MODEL != roberta ]] || USUAL_PAPER=roberta
PAPER=${PAPER:-$USUAL_PAPER}
NUMBERS=$(paper_settings "$PAPER" "$SIZE")
read -r SAMPLES LENGTH WARMUP RATE BETA2 CLIP <<<"$NUMBERS"
WARMUP=$(fraction "$((${UPDATES:-$LENGTH} * WARMUP))" "$LENGTH")
UPDATES=${UPDATES:-$LENGTH} BATCH=${BATCH:-$SAMPLES}
cluster_flags
((DRY_RUN)) || [[ -f $DATA/dict.txt ]] ||
    die "$DATA: no dict.txt there; give the data-bin folder that prepare.sh made"
USER_DIR=${USER_DIR:-$(plugin_dir)}
NAME=$MODEL
[[ $PAPER == "$USUAL_PAPER" ]] || NAME+=-$PAPER
[[ $SIZE == base ]] || NAME+=-$SIZE
[[ $OPTIMIZER == adam ]] || NAME+=-$OPTIMIZER
[[ $FORMAT == full-sentences ]] || NAME+=-$FORMAT
[[ $STATIC == 0 ]] || NAME+=-static$STATIC
SAVE_DIR=${SAVE_DIR:-runs/bert_pretraining/$NAME}

equal_shares "--batch $BATCH" "$BATCH" "$SAMPLES_PER_GPU"
case $OPTIMIZER in
    adam)
        RULE=(--optimizer adam --adam-betas "(0.9, $BETA2)" --adam-eps 1e-6 --weight-decay 0.01
            --lr "$RATE" --lr-scheduler polynomial_decay --total-num-update "$UPDATES") ;;
    amos)
        RATE=$(awk -v updates="$UPDATES" 'BEGIN { printf "%.2e", 1 / sqrt(updates) }')
        RULE=(--optimizer amos --amos-momentum 0.9 --lr "$RATE" --lr-scheduler fixed
            --fp16-no-flatten-grads) ;;
esac

# RoBERTa's architecture is BERT's, with a learned table of positions.
ARCH=${MODEL/#roberta/bert_a}_masked_lm_base SHAPE=()
[[ $SIZE == base ]] || SHAPE=(--encoder-layers 24 --encoder-embed-dim 1024
    --encoder-ffn-embed-dim 4096 --encoder-attention-heads 16)

# The formats of RoBERTa's Table 2.  Where samples are short, there are more of them in a batch.
TASK=masked_lm_pairs ROWS=(--max-tokens "$((SHARE * $(tokens_per_sample "${EXTRA[@]}")))")
PAIRS=(--pairs nsp --num-segments 2 --separator-token 2) # </s> </s> as in GLUE's recipe
case $FORMAT in
    segment-pair) INPUT=("${PAIRS[@]}") ROWS=(--batch-size "$SHARE") ;;
    sentence-pair) INPUT=("${PAIRS[@]}" --unit sentence) ;;
    full-sentences) INPUT=(--sample-break-mode complete) ROWS=(--batch-size "$SHARE") ;;
    doc-sentences) INPUT=(--sample-break-mode complete_doc) ;;
esac
if [[ $FORMAT == full-sentences && $STATIC == 0 ]]; then
    TASK=masked_lm
else
    INPUT+=(--static-masks "$STATIC")
fi

alone "$SAVE_DIR"
pack_trained --check
# Epochs are irrelevant here: between two checkpoints, a small corpus has many and a large one
# less than one.
train "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" --task "$TASK" \
    --arch "$ARCH" "${SHAPE[@]}" --tokens-per-sample 512 "${INPUT[@]}" \
    --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
    --criterion "$TASK" --dropout 0.1 --attention-dropout 0.1 \
    "${RULE[@]}" --warmup-updates "$WARMUP" --clip-norm "$CLIP" --max-update "$UPDATES" \
    "${ROWS[@]}" --update-freq "$PASSES" --required-batch-size-multiple 1 \
    --seed 1 --no-epoch-checkpoints \
    --save-interval 1000000 --validate-interval 1000000 \
    --save-interval-updates "$(fraction "$UPDATES" 100)" --keep-interval-updates 1 \
    --keep-interval-updates-pattern "$(fraction "$UPDATES" 10)" \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
    "${CLUSTER[@]}" "${EXTRA[@]}"
pack_trained "$DATA" "$USER_DIR" "Pre-trained on $DATA."
