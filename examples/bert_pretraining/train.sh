#!/usr/bin/env bash
# Pre-train any masked language model, with the hyper-parameters of a paper.
#   [PAPER=tupe] [UPDATES=N] [OPTIMIZER=adam] [PRECISION=--fp16] train.sh ARCH DATA SAVE_DIR [flags of fairseq-train, which win]
# PAPER is tupe (Table 1), roformer (section 4.2), roberta or roberta-large (Table 9), or roberta-256,
# roberta-2k or roberta-8k (Table 3). The flags are for 8 GPUs; README.md has flags for other machines.
# If the script is started again, training resumes.
set -euo pipefail
ARCH=${1:?an architecture} DATA=${2:?the data-bin of prepare.sh} SAVE_DIR=${3:?a folder for checkpoints}
PAPER=${PAPER:-tupe} PRECISION=${PRECISION---fp16}
mkdir -p "$SAVE_DIR"

# Where a paper gives no value: RoFormer gets TUPE's warm-up and clip norm; the first row of RoBERTa's Table 3
# gets BERT's warm-up and beta 2 (RoBERTa, section 2.4), and the other rows get Table 9's.
case $PAPER in # samples per GPU and pass, passes per update; updates, warm-up; learning rate, beta 2, clip norm
    tupe) NUMBERS="32 1 1000000 10000 1e-4 0.999 1.0" ;;
    roformer) NUMBERS="8 1 100000 1000 1e-5 0.999 1.0" ;;
    roberta) NUMBERS="32 32 500000 24000 6e-4 0.98 0.0" ;;
    roberta-large) NUMBERS="32 32 500000 30000 4e-4 0.98 0.0" ;;
    roberta-256) NUMBERS="32 1 1000000 10000 1e-4 0.999 0.0" ;;
    roberta-2k) NUMBERS="32 8 125000 6000 7e-4 0.98 0.0" ;;
    roberta-8k) NUMBERS="32 32 31250 1500 1e-3 0.98 0.0" ;; # printed as 31K
    *) echo "train.sh: PAPER=$PAPER: expected tupe, roformer, roberta, or roberta-large, -256, -2k or -8k" >&2 && exit 1 ;;
esac
read -r SAMPLES PASSES USUAL WARMUP RATE BETA CLIP <<<"$NUMBERS"
UPDATES=${UPDATES:-$USUAL} # warm-up keeps its share of the updates; a checkpoint is kept after each tenth of them
RULE=(--optimizer adam --adam-betas "(0.9, $BETA)" --adam-eps 1e-6 --weight-decay 0.01
    --lr "$RATE" --lr-scheduler polynomial_decay --total-num-update "$UPDATES")
[[ ${OPTIMIZER:-adam} != amos ]] || RULE=(--optimizer amos --amos-momentum 0.9 --fp16-no-flatten-grads
    --lr "$(awk "BEGIN { print 1 / sqrt($UPDATES) }")" --lr-scheduler fixed) # Amos finds its own decay (RoFormer, section 4.8)
EVERY=$(((UPDATES + 99) / 100)) && KEPT=$((EVERY * ((UPDATES + 10 * EVERY - 1) / (10 * EVERY)))) # a tenth, as a multiple of EVERY

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --task masked_lm --criterion masked_lm --arch "$ARCH" --dropout 0.1 --attention-dropout 0.1 \
    --tokens-per-sample 512 --sample-break-mode complete \
    --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
    "${RULE[@]}" --clip-norm "$CLIP" --warmup-updates $((WARMUP * UPDATES / USUAL)) \
    --batch-size "$SAMPLES" --update-freq "$PASSES" --required-batch-size-multiple 1 --max-update "$UPDATES" \
    --save-interval-updates "$EVERY" --keep-interval-updates 1 --keep-interval-updates-pattern "$KEPT" \
    --no-epoch-checkpoints --save-interval 1000000 --validate-interval 1000000 --update-epoch-batch-itr True \
    --seed 1 ${PRECISION:+"$PRECISION"} --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:4}"
