#!/usr/bin/env bash
# GLUE: fine-tune a pre-trained model on a task, for all learning rates and seeds.
#
#   finetune.sh DATA CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# DATA is the folder of a TASK that prepare.sh made (glue/CoLA), CHECKPOINT the result of pre-training,
# with which the shape and the position encoding of the model come. Logs go to
# OUT/NAME/TASK/lrRATE-batchN-seedSEED, and OUT/NAME/TASK/model is the model folder of the best run; it
# ends with a table of all models and tasks in OUT.
#
#   --name NAME           name of the model in the table (default: the folder of CHECKPOINT)
#   --paper tupe|roformer|roberta|gau  the paper whose settings are used (tupe)
#   --from NAME           start from the best model of another task, OUT/NAME/TASK/model, with a new
#                         classifier: MNLI for RTE, STS-B and MRPC, as RoBERTa does on the test
#                         sets. Logs go to OUT/NAME-from-TASK, another row of the table
#   --lr "X ..."          learning rates, instead of the paper's
#   --seeds "N ..."       seeds (default: 1 2 3 4 5; with --paper roformer or gau 1 2 3)
#   --epochs N            passes over the training data, instead of the paper's
#   --batch "N ..."       examples per update, instead of the paper's
#   --patience N          stop a run after N epochs without a better score (default: never)
#   --epoch best|last     score of a run: that of its best or of its last epoch on the
#                         validation set (best)
#   --models N            model folders of the N best runs: model, model-2, ...; submit.sh averages
#                         their logits (1)
#   --keep-checkpoints    keep the best checkpoint of every run (only those of the best N)
#   --no-model            scores only: no checkpoints, and no model folder
#   --cpu                 without GPU or fp16
#   options of ../common/steps.sh --user-dir --dry-run --help
#
# README.md has the settings of the papers; gau is for examples/clue, which sets it. Epochs, batch,
# learning rates and scores of your own tasks are theirs.

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

. "$COMMON/finetuning.sh"

#        table               warm-up, percent; Adam's epsilon, beta 2; weight decay, clip norm, seeds
case $PAPER in
    roformer) NUMBERS=(glue 6 1e-6 0.999 0.01 1.0 "1 2 3") ;;
    roberta) NUMBERS=(glue 6 1e-6 0.98 0.1 0.0 "1 2 3 4 5") ;; # Adam's as in the pre-training
    gau) NUMBERS=(clue 10 1e-8 0.999 0.01 1.0 "1 2 3") ;;
    *) NUMBERS=(glue 6 1e-6 0.999 0.01 1.0 "1 2 3 4 5") ;;
esac
# The description of prepared data, or in a dry run a table that has the task.
mapfile -t TABLES < <(ls "$DATA/task.yaml" 2>/dev/null || true
    grep -Flx "$TASK:" "$COMMON/../${NUMBERS[0]}/tasks.yaml" "$RECIPE/superglue.yaml")
[[ -n ${TABLES[*]} ]] ||
    die "$DATA: is not the folder of a task; give one that prepare.sh made, such as glue/CoLA or clue/TNEWS"
[[ $PAPER == gau ]] && FLAGS=(--pooler-dropout 0.1) || FLAGS=(--separator-token 2) # BERT's one [SEP]
if [[ -n $FROM ]]; then
    [[ $FROM != "$TASK" ]] || die "--from $FROM: is the task itself; give another"
    CHECKPOINT=$OUT/$NAME/$FROM/model/checkpoint.pt NAME+=-from-$FROM
    need "$CHECKPOINT" "--from $FROM: there is no $CHECKPOINT; run finetune.sh on $FROM first"
    # The classes are others, even where they are as many: a head of another name is a new one.
    FLAGS+=(--classification-head-name "head_of_${TASK//[^A-Za-z0-9]/_}")
fi
for file in examples task.yaml; do
    need "$DATA/$file" "$DATA: is incomplete; run prepare.sh"
done
SETTINGS=$(fairseq-posenc sentence-task settings "${TABLES[0]}" "$TASK" --paper "$PAPER")
eval "$SETTINGS"
PASSES=${EPOCHS:-$USUAL_EPOCHS} BATCH=${BATCH:-${USUAL_BATCHES[*]}} LR=${LR:-${USUAL_RATES[*]}}
SEEDS=${SEEDS:-${NUMBERS[6]}} WARMUP=${NUMBERS[1]} RUNS=$OUT/$NAME/$TASK
alone_in_first_run

FLAGS+=(--task sentence_prediction --init-token 0 --shorten-method truncate "${TARGET[@]}"
    --criterion sentence_prediction_metrics --metrics "$METRICS")
if [[ -d $DATA/input3 ]]; then # of prepare_wsc.sh: a masked language model, not a classifier
    FLAGS=(--task candidate_ranking --criterion candidate_ranking)
    ((NO_MODEL)) || KEEP_CHECKPOINTS=1
fi
((!NO_MODEL)) || FLAGS+=(--no-save)
[[ -z $PATIENCE ]] || FLAGS+=(--patience "$PATIENCE")
scores() {
    fairseq-posenc script "$COMMON/scores.py" --paper "$PAPER" "$@"
}

if [[ -f $DATA/task.yaml ]]; then
    run mkdir -p "$RUNS"
    run cp "$DATA/task.yaml" "$RUNS"
fi
finished() { # of checkpoints, keep those of the best so far
    ((DRY_RUN || NO_MODEL || KEEP_CHECKPOINTS)) ||
        fairseq-posenc alone "$RUNS" --waits -- python -m fairseq_posenc script \
            "$COMMON/scores.py" --paper "$PAPER" --best-runs "$MODELS" --prune "$RUNS" >&2
}
tune_all "${FLAGS[@]}" --best-checkpoint-metric "$BEST" --adam-betas "(0.9, ${NUMBERS[3]})" \
    --adam-eps "${NUMBERS[2]}" --weight-decay "${NUMBERS[4]}" --clip-norm "${NUMBERS[5]}"

if ((!NO_MODEL)) && [[ ! -d $DATA/input3 ]]; then
    BEST_RUNS=("${FOLDERS[@]:0:MODELS}") PACK=(--text-of "$DATA" --ctranslate2 no)
    ((DRY_RUN)) || mapfile -t BEST_RUNS < <(scores --best-runs "$MODELS" "$RUNS")
    ((${#BEST_RUNS[@]} == MODELS)) ||
        log "--models $MODELS: only ${#BEST_RUNS[@]} runs have a checkpoint (a call with fewer" \
            "models removes those of other runs); to train a run again, remove its folder in $RUNS"
    ((!${#BOUNDS[@]})) || PACK+=(--regression-range "${BOUNDS[@]}")
    [[ ${USER_DIR##*/} == fairseq_posenc ]] || PACK+=(--user-dir "$USER_DIR")
    STEPS=$RUNS name=model number=1
    for run in "${BEST_RUNS[@]}"; do
        IFS=$'\t' read -r run score <<<"$run"
        step "$name" --waits --inputs "$run/train.log" --data "$DATA" --settings "$score" \
            --replaces "$RUNS/$name" --known-by model.json --option OUT -- \
            fairseq-posenc pack "$run/checkpoint_best.pt" "$(part "$RUNS/$name")" --data "$DATA" \
            "${PACK[@]}" --about "Fine-tuned on $TASK ($EXAMPLES examples): $score." >&$((2 - DRY_RUN))
        number=$((number + 1)) name=model-$number
    done
    for folder in "$RUNS"/model-*; do # of an earlier call with more
        [[ ! -f $folder/model.json || ! $folder =~ /model-[0-9]+$ ]] ||
            ((${folder##*-} <= MODELS)) || run rm -rf "$folder"
    done
fi
run fairseq-posenc script "$COMMON/scores.py" --paper "$PAPER" --epoch "$EPOCH" "$OUT"
