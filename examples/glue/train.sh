#!/usr/bin/env bash
# Fine-tune a pre-trained model on the sentence task in DATA, with the epochs, batch size and rate in DATA/task.
#   [LR=X] [BATCH=N] [EPOCHS=N] [PRECISION=--fp16] train.sh DATA MODEL SAVE_DIR [flags of fairseq-train, which win]
# DATA is the data-bin of prepare.sh, MODEL the folder of the pre-trained model. If started again, training resumes.
set -euo pipefail
DATA=${1:?the data-bin of prepare.sh} MODEL=${2:?a model folder} SAVE_DIR=${3:?a folder for checkpoints}
PRECISION=${PRECISION---fp16}
read -r -a TASK <"$DATA/task"
EPOCHS=${EPOCHS:-${TASK[0]}} BATCH=${BATCH:-${TASK[1]}} LR=${LR:-${TASK[2]}} WARMUP=${TASK[3]}
EXAMPLES=$(wc -l <"$DATA/label/train.label")
UPDATES=$(((EXAMPLES + BATCH - 1) / BATCH)) && UPDATES=$((UPDATES * EPOCHS))
KIND=(--task sentence_prediction --criterion sentence_prediction_metrics --init-token 0 --shorten-method truncate)
[[ ! -e $DATA/input2 ]] || KIND=(--task candidate_ranking --criterion candidate_ranking) # noun phrases from pronouns.py
mkdir -p "$SAVE_DIR"

exec fairseq-train "$DATA" --user-dir "$(fairseq-posenc path)" --save-dir "$SAVE_DIR" \
    --finetune-from-model "$MODEL/checkpoint.pt" --arch posenc_masked_lm "${KIND[@]}" \
    --dropout 0.1 --attention-dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.999)' --weight-decay 0.01 --clip-norm 1.0 \
    --lr "$LR" --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates $((UPDATES * WARMUP / 100)) \
    --max-epoch "$EPOCHS" --batch-size "$BATCH" --required-batch-size-multiple 1 --seed 1 ${PRECISION:+"$PRECISION"} \
    --maximize-best-checkpoint-metric --no-epoch-checkpoints --update-epoch-batch-itr True \
    --log-format json --log-interval 100 --log-file "$SAVE_DIR/train.log" "${TASK[@]:4}" "${@:4}"
