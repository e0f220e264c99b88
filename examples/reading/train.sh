#!/usr/bin/env bash
# Fine-tune a pre-trained model on a reading task, with the hyper-parameters of a paper.
#   [LR=X] [BATCH=N] [EPOCHS=N] [PRECISION=--fp16] train.sh TASK DATA MODEL SAVE_DIR [flags of fairseq-train]
# DATA is the data-bin of prepare.sh, MODEL the folder of the pre-trained model. BATCH counts windows for
# spans, and questions for multiple choice. If the script is started again, training resumes.
set -euo pipefail
TASK=${1:?a task} DATA=${2:?the data-bin of prepare.sh} MODEL=${3:?a model folder} SAVE_DIR=${4:?a folder for checkpoints}
PRECISION=${PRECISION---fp16} WARMUP=10 LONGEST=64
mkdir -p "$SAVE_DIR"

case $TASK in
    squad) : "${LR:=1.5e-5} ${BATCH:=48} ${EPOCHS:=2}" && WARMUP=6 LONGEST=30 ;;
    race) : "${LR:=1e-5} ${BATCH:=16} ${EPOCHS:=4}" && WARMUP=6 ;;
    copa | qnli) : "${LR:=1e-5} ${BATCH:=16} ${EPOCHS:=10}" && WARMUP=6 ;;
    cmrc | chid) : "${LR:=3e-5} ${BATCH:=32} ${EPOCHS:=3}" ;;
    c3) : "${LR:=2e-5} ${BATCH:=24} ${EPOCHS:=8}" ;;
    cail) : "${LR:=2e-5} ${BATCH:=32} ${EPOCHS:=3}" ;;
    *) echo "train.sh: $TASK: expected squad, cmrc, race, c3, chid, copa, qnli or cail" >&2 && exit 1 ;;
esac
FLAGS=(--adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --clip-norm 1.0 --pooler-dropout 0.1 --weight-decay 0.01) # GAU
case $TASK in
    squad) FLAGS=(--adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 0.0 --weight-decay 0.01 --separator-token 2) ;;
    race | copa | qnli) FLAGS=(--adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 0.0 --weight-decay 0.1 --separator-token 2) ;;
    cail) FLAGS+=(--separator-token 2 --max-positions 512 --max-option-length 256) ;; # half of the positions for each case
esac
if [[ $TASK == squad || $TASK == cmrc ]]; then
    FLAGS+=(--task span_prediction --criterion span_prediction --best-checkpoint-metric f1
        --longest-question 64 --longest-answer "$LONGEST")
    EXAMPLES=$(fairseq-posenc reading windows "$DATA" "${FLAGS[@]}" "${@:5}") # the number of windows; long passages have several
else
    inputs=("$DATA"/input*) subsets=$(cd "$DATA/label" && echo valid*.label)
    FLAGS+=(--task sentence_ranking --criterion sentence_ranking --best-checkpoint-metric accuracy
        --num-classes $((${#inputs[@]} - 1)) --valid-subset "$(sed 's/\.label//g; s/ /,/g' <<<"$subsets")" --shorten-method truncate)
    EXAMPLES=$(wc -l <"$DATA/label/train.label")
fi
STEPS=$(((EXAMPLES + BATCH - 1) / BATCH)) && STEPS=$((STEPS * EPOCHS))

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --finetune-from-model "$MODEL/checkpoint.pt" --arch posenc_masked_lm --init-token 0 "${FLAGS[@]}" \
    --dropout 0.1 --attention-dropout 0.1 --optimizer adam --lr "$LR" --lr-scheduler polynomial_decay \
    --total-num-update "$STEPS" --warmup-updates $((STEPS * WARMUP / 100)) \
    --max-epoch "$EPOCHS" --batch-size "$BATCH" --required-batch-size-multiple 1 --seed 1 ${PRECISION:+"$PRECISION"} \
    --maximize-best-checkpoint-metric --no-epoch-checkpoints --update-epoch-batch-itr True \
    --log-format json --log-interval 100 --log-file "$SAVE_DIR/train.log" "${@:5}"
