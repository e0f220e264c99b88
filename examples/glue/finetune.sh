#!/usr/bin/env bash
# GLUE: fine-tune a pre-trained model on a task, for all learning rates and seeds.
#
#   finetune.sh TASK CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# TASK is a folder that prepare.sh made (glue/CoLA), CHECKPOINT the result of pre-training.
# The shape and the position encoding of the model come from the checkpoint. Logs go to
# OUT/NAME/TASK, and OUT/NAME/TASK/model is the model folder of the best run; it ends with a table of
# all models and tasks in OUT. Stopped and started again, it continues with the runs that are not
# done.
#
#   --name NAME           name of the model in the table (the folder of CHECKPOINT)
#   --paper PAPER         tupe: 10 epochs, 5 for MNLI, QQP and QNLI; accuracy, Matthews
#                         for CoLA, Pearson for STS-B; median of five seeds (default)
#                         roformer: 3 epochs; F1 for MRPC and QQP, Spearman for STS-B;
#                         mean of three seeds
#                         gau: for examples/clue, which sets this
#                         epochs, batch, learning rates and scores of your own tasks are theirs
#   --lr "X ..."          learning rates (2e-5 3e-5 4e-5 5e-5; gau: the paper's)
#   --seeds "N ..."       seeds (1 2 3 4 5; with --paper roformer or gau 1 2 3)
#   --epochs N            passes over the training data, instead of the paper's
#   --batch N             examples per update (32; gau: the paper's)
#   --epoch WHICH         score of a run: that of its best or of its last epoch on the
#                         validation set (best)
#   --keep-checkpoints    keep the best checkpoint of every run (only that of the best run)
#   --no-model            scores only: no checkpoints, and no model folder
#   --cpu                 without GPU or fp16
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

DATA="" CHECKPOINT="" OUT="" NAME="" PAPER=tupe SEEDS="" EPOCHS="" USER_DIR=""
RATES="" BATCH="" EPOCH=best KEEP=best DEVICE=(--fp16) HEAD=()
SEPARATOR=(--separator-token 2)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --cpu) DEVICE=(--cpu); shift ;;
        --keep-checkpoints) KEEP=all; shift ;;
        --no-model) KEEP=none; shift ;;
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
        TABLE=$RECIPE/tasks.yaml EXAMPLE=glue/CoLA WARMUP=6 EPSILON=1e-6 ;;
    gau)
        TABLE=$RECIPE/../clue/tasks.yaml EXAMPLE=clue/TNEWS WARMUP=10 EPSILON=1e-8
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
need python fairseq-train
[[ ! -f $DATA/task.yaml ]] || TABLE=$DATA/task.yaml # otherwise, a dry run
[[ -f $DATA/task.yaml ]] || grep -Fqx "$TASK:" "$TABLE" ||
    die "$DATA: is not the folder of a task; give one that prepare.sh made, such as $EXAMPLE"
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")}
plain_name --name "$NAME"
for file in examples task.yaml; do
    ((DRY_RUN)) || [[ -f $DATA/$file ]] || die "$DATA: is incomplete; run prepare.sh"
done
((DRY_RUN)) || [[ -f $CHECKPOINT ]] || die "$CHECKPOINT: no such file"
USER_DIR=${USER_DIR:-$(plugin_dir)}

SETTINGS=$(python "$COMMON/tasks.py" settings "$TABLE" "$TASK" --paper "$PAPER")
read -r CLASSES USUAL SCORES BEST USUAL_BATCH KIND VALID POSITIVE USUAL_RATES <<<"$SETTINGS"
OTHER_BATCH=$BATCH
[[ $BATCH != "$USUAL_BATCH" ]] || OTHER_BATCH=""
EPOCHS=${EPOCHS:-$USUAL} BATCH=${BATCH:-$USUAL_BATCH} RATES=${RATES:-$USUAL_RATES}
whole_number --epochs "$EPOCHS"
EXAMPLES=1
[[ ! -f $DATA/examples ]] || EXAMPLES=$(<"$DATA/examples")
PER_EPOCH=$(((EXAMPLES + BATCH - 1) / BATCH))
UPDATES=$((PER_EPOCH * EPOCHS))
TARGET=(--num-classes "$CLASSES")
[[ $KIND == classes ]] || TARGET+=(--regression-target)
[[ $VALID == valid ]] || TARGET+=(--valid-subset "$VALID")
[[ $POSITIVE == 1 ]] || TARGET+=(--positive-label "$POSITIVE")
SAVE=(--no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state)
[[ $KEEP != none ]] || SAVE=(--no-save)

# A log gets its final name when its run is complete. One process: the batch size is that of
# the paper whatever the number of GPUs.
tune() {
    local folder=$1
    run rm -f "$folder"/{train.log{,.part},checkpoint_best.pt}
    train_model "$@" --log-file "$folder/train.log.part"
    run mv "$folder/train.log.part" "$folder/train.log"
}

# Set BEST_RUN to the folder of the best run so far, and BEST_SCORE; keep only its checkpoint,
# unless those of all are wanted. Another finetune.sh may be at work on other seeds.
best_run() {
    local found other
    found=$(python "$COMMON/scores.py" --paper "$PAPER" --best-run "$RUNS")
    IFS=$'\t' read -r BEST_RUN BEST_SCORE <<<"$found"
    for other in "$RUNS"/lr*-seed*; do
        [[ $KEEP == all || $other == "$BEST_RUN" || ! -f $other/train.log ]] ||
            rm -f "$other/checkpoint_best.pt"
    done
}

# The standard output is for the table.
pack_best() {
    local stream=$((2 - DRY_RUN)) flags=()
    [[ $KIND == classes ]] || flags=(--regression-range "${KIND%,*}" "${KIND#*,}")
    pack_trained "$RUNS/model" "$1/checkpoint_best.pt" "$DATA" \
        "Fine-tuned on $TASK ($EXAMPLES examples): $2." ${flags[@]+"${flags[@]}"} >&"$stream"
}

RUNS=$OUT/$NAME/$TASK
STEPS=$RUNS/steps
if [[ -f $DATA/task.yaml ]]; then
    run mkdir -p "$RUNS"
    run cp "$DATA/task.yaml" "$RUNS"
fi
GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$CHECKPOINT")$'\n'
for rate in $RATES; do
    for seed in $SEEDS; do
        # Other batches than the paper's have folders of their own.
        run_name=lr$rate${OTHER_BATCH:+-batch$OTHER_BATCH}-seed$seed
        folder=$RUNS/$run_name
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
        if [[ $KEEP == best ]] && ((!DRY_RUN)); then
            hold "$RUNS" wait
            best_run
            release
        fi
    done
done
if [[ $KEEP != none ]]; then
    BEST_RUN=$folder BEST_SCORE=""
    hold "$RUNS" wait
    ((DRY_RUN)) || best_run
    chain ""
    ((DRY_RUN)) || STEP_CHAIN+=$(cat "$BEST_RUN/train.log" "$DATA/task.yaml" | sha256sum)$'\n'
    step model "$RUNS/model/model.json" -- pack_best "$BEST_RUN" "$BEST_SCORE"
    release
fi
run python "$COMMON/scores.py" --paper "$PAPER" --epoch "$EPOCH" "$OUT"
