#!/usr/bin/env bash
# GLUE: fine-tune a pre-trained model on a task, for all learning rates and seeds.
#
#   finetune.sh TASK CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# TASK is a folder that prepare.sh made (glue/CoLA), CHECKPOINT the result of pre-training.
# The shape and the position encoding of the model come from the checkpoint. Logs go to
# OUT/NAME/TASK; it ends with a table of all models and tasks in OUT. Stopped and
# started again, it continues with the runs that are not done.
#
#   --name NAME           name of the model in the table (the folder of CHECKPOINT)
#   --paper PAPER         tupe: 10 epochs, 5 for MNLI, QQP and QNLI; accuracy, Matthews
#                         for CoLA, Pearson for STS-B; median of five seeds (default)
#                         roformer: 3 epochs; F1 for MRPC and QQP, Spearman for STS-B;
#                         mean of three seeds
#                         gau: for examples/clue, which sets this
#   --lr "X ..."          learning rates (2e-5 3e-5 4e-5 5e-5; gau: the paper's)
#   --seeds "N ..."       seeds (1 2 3 4 5; with --paper roformer or gau 1 2 3)
#   --epochs N            passes over the training data, instead of the paper's
#   --batch N             examples per update (32; gau: the paper's)
#   --epoch WHICH         score of a run: that of its best or of its last epoch on the
#                         validation set (best)
#   --keep-checkpoints    keep the best checkpoint of every run
#   --cpu                 without GPU or fp16
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" CHECKPOINT="" OUT="" NAME="" PAPER=tupe SEEDS="" EPOCHS="" USER_DIR=""
RATES="" BATCH="" EPOCH=best SAVE=(--no-save) DEVICE=(--fp16) HEAD=()
SEPARATOR=(--separator-token 2)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --cpu) DEVICE=(--cpu); shift ;;
        --keep-checkpoints) SAVE=(--no-epoch-checkpoints --no-last-checkpoints); shift ;;
        --name) NAME=$(value "$@"); shift 2 ;;
        --paper) PAPER=$(value "$@"); shift 2 ;;
        --lr) RATES=$(value "$@"); shift 2 ;;
        --seeds) SEEDS=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --batch) BATCH=$(value "$@"); shift 2 ;;
        --epoch) EPOCH=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) die "$1: unknown option; see --help (flags for fairseq-train go after --)" ;;
        *)
            [[ -z $OUT ]] || die "$1: unexpected argument; flags for fairseq-train go after --"
            if [[ -z $DATA ]]; then DATA=$1
            elif [[ -z $CHECKPOINT ]]; then CHECKPOINT=$1
            else OUT=$1; fi
            shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the task's folder, the checkpoint and the output folder; see --help"
case $PAPER in
    tupe | roformer)
        TASKS="CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE" EXAMPLE=glue/CoLA
        SETTINGS=("$RECIPE/tasks.py" settings --paper "$PAPER")
        TABLE=("$RECIPE/scores.py" --paper "$PAPER") ;;
    gau)
        TASKS="AFQMC CSL IFLYTEK TNEWS WSC CMNLI" EXAMPLE=clue/TNEWS
        SETTINGS=("$RECIPE/../clue/clue.py" settings)
        TABLE=("$RECIPE/../clue/clue.py" scores)
        HEAD=(--pooler-dropout 0.1) SEPARATOR=() ;; # BERT's one [SEP] between texts
    *) die "--paper $PAPER: expected tupe, roformer or gau" ;;
esac
[[ $EPOCH == best || $EPOCH == last ]] || die "--epoch $EPOCH: expected best or last"
if [[ -z $SEEDS ]]; then
    SEEDS="1 2 3"
    [[ $PAPER != tupe ]] || SEEDS+=" 4 5"
fi
for rate in $RATES; do
    [[ $rate =~ ^[0-9.]+(e-[0-9]+)?$ ]] || die "--lr $rate: expected numbers such as 2e-5"
done
for seed in $SEEDS; do
    whole_number --seeds "$seed"
done
[[ -z $BATCH ]] || whole_number --batch "$BATCH"
DATA=$(absolute "${DATA%/}") CHECKPOINT=$(absolute "$CHECKPOINT") OUT=$(absolute "$OUT")
TASK=${DATA##*/}
[[ " $TASKS " == *" $TASK "* ]] ||
    die "$DATA: is not the folder of a task; give one that prepare.sh made, such as $EXAMPLE"
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")}
plain_name --name "$NAME"
need python fairseq-train
((DRY_RUN)) || [[ -f $DATA/examples ]] || die "$DATA: is incomplete; run prepare.sh"
((DRY_RUN)) || [[ -f $CHECKPOINT ]] || die "$CHECKPOINT: no such file"
USER_DIR=${USER_DIR:-$(plugin_dir)}

read -r CLASSES USUAL SCORES BEST USUAL_BATCH WARMUP EPSILON USUAL_RATES < <(
    python "${SETTINGS[@]}" "$TASK"
)
OTHER_BATCH=$BATCH
[[ $BATCH != "$USUAL_BATCH" ]] || OTHER_BATCH=""
EPOCHS=${EPOCHS:-$USUAL} BATCH=${BATCH:-$USUAL_BATCH} RATES=${RATES:-$USUAL_RATES}
whole_number --epochs "$EPOCHS"
EXAMPLES=1
[[ ! -f $DATA/examples ]] || EXAMPLES=$(<"$DATA/examples")
PER_EPOCH=$(((EXAMPLES + BATCH - 1) / BATCH))
UPDATES=$((PER_EPOCH * EPOCHS))
TARGET=(--num-classes "$CLASSES")
[[ $TASK != STS-B ]] || TARGET+=(--regression-target)
[[ $TASK != MNLI ]] || TARGET+=(--valid-subset "valid,valid1")

# A log gets its final name when its run is complete. One process: the batch size is that of
# the paper whatever the number of GPUs.
tune() {
    local folder=$1
    run rm -f "$folder"/{train.log{,.part},checkpoint_best.pt}
    train_model "$@" --log-file "$folder/train.log.part"
    run mv "$folder/train.log.part" "$folder/train.log"
}

STEPS=$OUT/$NAME/$TASK/steps
GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$CHECKPOINT")$'\n'
for rate in $RATES; do
    for seed in $SEEDS; do
        # Other batches than the paper's have folders of their own.
        run_name=lr$rate${OTHER_BATCH:+-batch$OTHER_BATCH}-seed$seed
        folder=$OUT/$NAME/$TASK/$run_name
        chain "$GIVEN"
        hold "$folder"
        step "$run_name" "$folder/train.log" -- tune "$folder" "$DATA" --user-dir "$USER_DIR" \
            --task sentence_prediction --arch posenc_masked_lm --restore-file "$CHECKPOINT" \
            --reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler \
            --init-token 0 "${SEPARATOR[@]}" --shorten-method truncate "${TARGET[@]}" \
            --criterion sentence_prediction_metrics --metrics "$SCORES" \
            --best-checkpoint-metric "$BEST" --maximize-best-checkpoint-metric \
            --dropout 0.1 --attention-dropout 0.1 "${HEAD[@]}" \
            --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps "$EPSILON" \
            --weight-decay 0.01 --clip-norm 1.0 --lr "$rate" --lr-scheduler polynomial_decay \
            --total-num-update "$UPDATES" --warmup-updates $((UPDATES * WARMUP / 100)) \
            --max-epoch "$EPOCHS" --batch-size "$BATCH" --required-batch-size-multiple 1 \
            --seed "$seed" "${SAVE[@]}" --distributed-world-size 1 \
            --log-format json --log-interval 100 "${DEVICE[@]}" "$@"
        release
    done
done
run python "${TABLE[@]}" --epoch "$EPOCH" "$OUT"
