#!/usr/bin/env bash
# GLUE: fine-tune a pre-trained model on a task, for all learning rates and seeds.
#
#   finetune.sh TASK CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# TASK is a folder that prepare.sh made (glue/CoLA), CHECKPOINT the result of pre-training.
# The shape and the position encoding of the model come from the checkpoint. Logs go to
# OUT/NAME/TASK/lrRATE-batchN-seedSEED, and OUT/NAME/TASK/model is the model folder of the best
# run; it ends with a table of all models and tasks in OUT. Stopped and started again, it continues
# with the runs that are not done.
#
#   --name NAME           name of the model in the table (the folder of CHECKPOINT)
#   --paper PAPER         tupe: 10 epochs, 5 for MNLI, QQP and QNLI; accuracy, Matthews
#                         for CoLA, Pearson for STS-B; median of five seeds (default)
#                         roformer: 3 epochs; F1 for MRPC and QQP, Spearman for STS-B;
#                         mean of three seeds
#                         roberta: Table 10, learning rates 1e-5, 2e-5 and 3e-5 with batches of 16
#                         and 32, 10 epochs; the pre-training's Adam; median of five seeds
#                         gau: for examples/clue, which sets this
#                         epochs, batch, learning rates and scores of your own tasks are theirs
#   --from TASK           start from the best model of another task, OUT/NAME/TASK/model, with a new
#                         classifier: MNLI for RTE, STS-B and MRPC, as RoBERTa does on the test
#                         sets. Logs go to OUT/NAME-from-TASK, another row of the table
#   --lr "X ..."          learning rates, instead of the paper's
#   --seeds "N ..."       seeds (1 2 3 4 5; with --paper roformer or gau 1 2 3)
#   --epochs N            passes over the training data, instead of the paper's
#   --batch "N ..."       examples per update, instead of the paper's
#   --patience N          stop a run after N epochs without a better score (never)
#   --epoch WHICH         score of a run: that of its best or of its last epoch on the
#                         validation set (best)
#   --models N            model folders of the N best runs: model, model-2, ...; submit.sh averages
#                         their logits (1)
#   --keep-checkpoints    keep the best checkpoint of every run (only those of the best N)
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
RATES="" BATCHES="" EPOCH=best KEEP=best DEVICE=(--fp16) HEAD=() FROM="" MODELS=1 PATIENCE=()
BETA2=0.999 DECAY=0.01 CLIP=1.0
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
        --batch) BATCHES=$(value "$@"); shift 2 ;;
        --from) FROM=$(value "$@"); shift 2 ;;
        --models) MODELS=$(value "$@"); shift 2 ;;
        --patience) PATIENCE=("$1" "$(value "$@")"); shift 2 ;;
        --epoch) EPOCH=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA CHECKPOINT OUT; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the task's folder, the checkpoint and the output folder; see --help"
case $PAPER in
    tupe | roformer)
        TABLE=$RECIPE/tasks.yaml EXAMPLE=glue/CoLA WARMUP=6 EPSILON=1e-6 ;;
    roberta) # Adam's settings are those of the pre-training but for the weight decay
        TABLE=$RECIPE/tasks.yaml EXAMPLE=glue/CoLA WARMUP=6 EPSILON=1e-6
        BETA2=0.98 DECAY=0.1 CLIP=0.0 ;;
    gau)
        TABLE=$RECIPE/../clue/tasks.yaml EXAMPLE=clue/TNEWS WARMUP=10 EPSILON=1e-8
        HEAD=(--pooler-dropout 0.1) SEPARATOR=() ;; # BERT's one [SEP] between texts
    *) die "--paper $PAPER: expected tupe, roformer, roberta or gau" ;;
esac
[[ $EPOCH == best || $EPOCH == last ]] || die "--epoch $EPOCH: expected best or last"
if [[ -z $SEEDS ]]; then
    SEEDS="1 2 3"
    [[ $PAPER != tupe && $PAPER != roberta ]] || SEEDS+=" 4 5"
fi
for rate in $RATES; do
    learning_rate --lr "$rate"
done
for seed in $SEEDS; do
    whole_number --seeds "$seed"
done
for batch in $BATCHES; do
    whole_number --batch "$batch"
done
whole_number --models "$MODELS"
((!${#PATIENCE[@]})) || whole_number "${PATIENCE[@]}"
DATA=$(absolute "${DATA%/}") CHECKPOINT=$(absolute "$CHECKPOINT") OUT=$(absolute "$OUT")
TASK=${DATA##*/}
need python fairseq-train
[[ ! -f $DATA/task.yaml ]] || TABLE=$DATA/task.yaml # otherwise, a dry run
[[ -f $DATA/task.yaml ]] || grep -Fqx "$TASK:" "$TABLE" || TABLE=$RECIPE/superglue.yaml
[[ -f $DATA/task.yaml ]] || grep -Fqx "$TASK:" "$TABLE" ||
    die "$DATA: is not the folder of a task; give one that prepare.sh made, such as $EXAMPLE"
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")}
plain_name --name "$NAME"
if [[ -n $FROM ]]; then
    plain_name --from "$FROM"
    [[ $FROM != "$TASK" ]] || die "--from $FROM: is the task itself; give another"
    CHECKPOINT=$OUT/$NAME/$FROM/model/checkpoint.pt
    ((DRY_RUN)) || [[ -f $CHECKPOINT ]] ||
        die "--from $FROM: there is no $CHECKPOINT; run finetune.sh on $FROM first"
    NAME+=-from-$FROM
    # The classes are others, even where they are as many: a head of another name is a new one.
    HEAD+=(--classification-head-name "head_of_${TASK//[^A-Za-z0-9]/_}")
fi
for file in examples task.yaml; do
    ((DRY_RUN)) || [[ -f $DATA/$file ]] || die "$DATA: is incomplete; run prepare.sh"
done
((DRY_RUN)) || [[ -f $CHECKPOINT ]] || die "$CHECKPOINT: no such file"
USER_DIR=${USER_DIR:-$(plugin_dir)}

SETTINGS=$(python "$COMMON/tasks.py" settings "$TABLE" "$TASK" --paper "$PAPER")
read -r CLASSES USUAL SCORES BEST USUAL_BATCHES KIND VALID POSITIVE USUAL_RATES <<<"$SETTINGS"
EPOCHS=${EPOCHS:-$USUAL} BATCHES=${BATCHES:-${USUAL_BATCHES//,/ }} RATES=${RATES:-$USUAL_RATES}
whole_number --epochs "$EPOCHS"
EXAMPLES=1
[[ ! -f $DATA/examples ]] || EXAMPLES=$(<"$DATA/examples")
TARGET=(--num-classes "$CLASSES")
[[ $KIND == classes ]] || TARGET+=(--regression-target)
[[ $VALID == valid ]] || TARGET+=(--valid-subset "$VALID")
[[ $POSITIVE == 1 ]] || TARGET+=(--positive-label "$POSITIVE")
OBJECTIVE=sentence_prediction
READING=(--init-token 0 "${SEPARATOR[@]}" --shorten-method truncate "${TARGET[@]}"
    --criterion sentence_prediction_metrics --metrics "$SCORES")
if [[ -d $DATA/input3 ]]; then # of prepare_wsc.sh: a masked language model, not a classifier
    OBJECTIVE=candidate_ranking READING=(--criterion candidate_ranking) HEAD=()
    [[ $KEEP == none ]] || KEEP=all
fi
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

# Set BEST_RUNS to the folders of the best runs so far, and BEST_SCORES; keep only their
# checkpoints, unless those of all are wanted. Another finetune.sh may be at work on other seeds.
best_runs() {
    local found other run score
    found=$(python "$COMMON/scores.py" --paper "$PAPER" --best-runs "$MODELS" "$RUNS")
    BEST_RUNS=() BEST_SCORES=()
    while IFS=$'\t' read -r run score; do
        BEST_RUNS+=("$run") BEST_SCORES+=("$score")
    done <<<"$found"
    for other in "$RUNS"/lr*-seed*; do
        [[ $KEEP == all || " ${BEST_RUNS[*]} " == *" $other "* || ! -f $other/train.log ]] ||
            rm -f "$other/checkpoint_best.pt"
    done
}

# Write model folder $1 of run $2 with score $3. The standard output is for the table.
pack_best() {
    local stream=$((2 - DRY_RUN)) flags=()
    [[ $KIND == classes ]] || flags=(--regression-range "${KIND%,*}" "${KIND#*,}")
    pack_trained OUT "$1" "$2/checkpoint_best.pt" "$DATA" \
        "Fine-tuned on $TASK ($EXAMPLES examples): $3." ${flags[@]+"${flags[@]}"} >&"$stream"
}

RUNS=$OUT/$NAME/$TASK
STEPS=$RUNS/steps
if [[ -f $DATA/task.yaml ]]; then
    run mkdir -p "$RUNS"
    run cp "$DATA/task.yaml" "$RUNS"
fi
GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$CHECKPOINT")$'\n'
use_data "$DATA"
# Fine-tune once, unless it is done: sweep RATE BATCH SEED, then flags for fairseq-train.
sweep() {
    local rate=$1 batch=$2 seed=$3 run_name folder per_epoch updates
    shift 3
    run_name=lr$rate-batch$batch-seed$seed
    # Folders of earlier versions do not name the batch where it was the paper's.
    [[ $batch != "$USUAL_BATCHES" || ! -d $RUNS/lr$rate-seed$seed ]] ||
        run_name=lr$rate-seed$seed
    folder=$RUNS/$run_name
    per_epoch=$(((EXAMPLES + batch - 1) / batch)) updates=$((per_epoch * EPOCHS))
    FOLDERS+=("$folder")
    chain "$GIVEN"
    hold "$folder"
    step "$run_name" "$folder/train.log" -- tune "$folder" "$DATA" --user-dir "$USER_DIR" \
        --task "$OBJECTIVE" --arch posenc_masked_lm --restore-file "$CHECKPOINT" \
        --reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler "${READING[@]}" \
        --best-checkpoint-metric "$BEST" --maximize-best-checkpoint-metric \
        --dropout 0.1 --attention-dropout 0.1 "${HEAD[@]}" \
        --optimizer adam --adam-betas "(0.9, $BETA2)" --adam-eps "$EPSILON" \
        --weight-decay "$DECAY" --clip-norm "$CLIP" --lr "$rate" --lr-scheduler polynomial_decay \
        --total-num-update "$updates" --warmup-updates $((updates * WARMUP / 100)) \
        --max-epoch "$EPOCHS" --batch-size "$batch" --required-batch-size-multiple 1 \
        --seed "$seed" "${SAVE[@]}" ${PATIENCE[@]+"${PATIENCE[@]}"} --distributed-world-size 1 \
        --log-format json --log-interval 100 "${DEVICE[@]}" "$@"
    note_data "$folder"
    release
    if [[ $KEEP == best ]] && ((!DRY_RUN)); then
        hold "$RUNS" wait
        best_runs
        release
    fi
}
FOLDERS=()
for batch in $BATCHES; do
    for rate in $RATES; do
        for seed in $SEEDS; do
            sweep "$rate" "$batch" "$seed" "$@"
        done
    done
done
warn_of_other_data "$RUNS"/lr*-seed*
if [[ $KEEP != none && $OBJECTIVE == sentence_prediction ]]; then
    BEST_RUNS=("${FOLDERS[@]:0:MODELS}") BEST_SCORES=()
    hold "$RUNS" wait
    ((DRY_RUN)) || best_runs
    ((DRY_RUN || ${#BEST_RUNS[@]} == MODELS)) ||
        log "--models $MODELS: only ${#BEST_RUNS[@]} runs have a checkpoint (a call with fewer" \
            "models removes those of other runs); to train a run again, remove its folder in $RUNS"
    for number in "${!BEST_RUNS[@]}"; do
        name=model run=${BEST_RUNS[number]}
        ((!number)) || name+=-$((number + 1))
        chain ""
        ((DRY_RUN)) || STEP_CHAIN+=$(cat "$run/train.log" "$DATA/task.yaml" | sha256sum)$'\n'
        step "$name" "$RUNS/$name/model.json" -- \
            pack_best "$RUNS/$name" "$run" "${BEST_SCORES[number]:-}"
    done
    for folder in "$RUNS"/model-*; do # of an earlier call with more
        [[ ! -f $folder/model.json || ! $folder =~ /model-[0-9]+$ ]] ||
            ((${folder##*-} <= MODELS)) || run rm -rf "$folder"
    done
    release
fi
run python "$COMMON/scores.py" --paper "$PAPER" --epoch "$EPOCH" "$OUT"
