#!/usr/bin/env bash
# Masked language models: pre-train one model of the TUPE paper, RoFormer or RoBERTa.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta, DATA the
# data-bin folder of prepare.sh. Flags after -- override the hyper-parameters, which are a paper's.
#
#   --paper tupe|roformer|roberta|roberta-256|roberta-2k|roberta-8k  TUPE's Table 1; RoFormer's section
#                         4.2; RoBERTa's Table 9, or a row of its Table 3 (default: roberta for the
#                         model roberta, tupe for the others)
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
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/pretraining.sh"

KNOWN="bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta"
[[ " $KNOWN " == *" $MODEL "* ]] || die "$MODEL: unknown model; expected one of $KNOWN"
USUAL_PAPER=tupe STATIC=${STATIC_MASKS:-0}
[[ $MODEL != roberta ]] || USUAL_PAPER=roberta
PAPER=${PAPER:-$USUAL_PAPER}
# Samples in an update, updates, warm-up, peak of the learning rate, Adam's beta 2, and clip norm (0:
# none). RoFormer's paper gives neither warm-up nor clipping (here TUPE's); RoBERTa's Table 3 neither
# warm-up nor beta 2: the first row has BERT's, as in its section 2.4, the others those of Table 9. The
# printed 31K are 31,250 updates: so all rows read as many samples, as the caption says.
case $PAPER-$SIZE in
    tupe-base) NUMBERS=(256 1000000 10000 1e-4 0.999 1.0) ;;
    roformer-base) NUMBERS=(64 100000 1000 1e-5 0.999 1.0) ;;
    roberta-base) NUMBERS=(8192 500000 24000 6e-4 0.98 0.0) ;;
    roberta-large) NUMBERS=(8192 500000 30000 4e-4 0.98 0.0) ;;
    roberta-256-base) NUMBERS=(256 1000000 10000 1e-4 0.999 0.0) ;;
    roberta-2k-base) NUMBERS=(2048 125000 6000 7e-4 0.98 0.0) ;;
    roberta-8k-base) NUMBERS=(8192 31250 1500 1e-3 0.98 0.0) ;;
    *) die "--size $SIZE: --paper $PAPER has numbers for base models only; --paper roberta has some" ;;
esac
UPDATES=${UPDATES:-${NUMBERS[1]}} BATCH=${BATCH:-${NUMBERS[0]}} RATE=${NUMBERS[3]}
WARMUP=$(fraction "$((UPDATES * NUMBERS[2]))" "${NUMBERS[1]}")
cluster_flags
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
        RULE=(--optimizer adam --adam-betas "(0.9, ${NUMBERS[4]})" --adam-eps 1e-6 --weight-decay 0.01
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
TASK=masked_lm_pairs
[[ "--tokens-per-sample 512 ${EXTRA[*]} " =~ .*--tokens-per-sample[\ =]([1-9][0-9]*)\  ]] # the last
ROWS=(--max-tokens $((SHARE * BASH_REMATCH[1])))
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

pretrain "Pre-trained on $DATA." --task "$TASK" \
    --arch "$ARCH" "${SHAPE[@]}" --tokens-per-sample 512 "${INPUT[@]}" \
    --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
    --criterion "$TASK" --dropout 0.1 --attention-dropout 0.1 \
    "${RULE[@]}" --warmup-updates "$WARMUP" --clip-norm "${NUMBERS[5]}" "${ROWS[@]}" --seed 1
