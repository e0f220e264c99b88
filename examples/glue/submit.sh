#!/usr/bin/env bash
# GLUE, CLUE, or tasks of your own: predictions for the test sets, as the benchmarks' sites take them.
#
#   submit.sh DATA MODELS OUT [options]
#
# DATA is the folder that prepare.sh made (glue), MODELS that of a model in the output of finetune.sh
# (runs/glue/tupe_r), with the model folders of every task: of several (model, model-2, ...) the
# logits are averaged. OUT then has a file for each test set:
# with GLUE CoLA.tsv, MNLI-m.tsv, MNLI-mm.tsv, AX.tsv ..., with CLUE afqmc_predict.json ...; their
# zip archive is what the site takes. Predictions with probabilities are in OUT/predictions.
#
#   --tasks "NAME ..."    of these tasks (default: those in DATA with a test set and a model)
#   --device cpu|cuda     where to compute (cpu)
#   --user-dir DIR        the plug-in that the models need, if it is your own
#   options of ../common/steps.sh --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
DATA=$(absolute "$DATA") MODELS=$(absolute "$MODELS") OUT=$(absolute "$OUT")
if [[ -z $TASKS ]]; then
    for folder in "$DATA"/*/test; do
        task=${folder%/test} task=${task##*/}
        [[ ! -d $folder || ! -f $MODELS/$task/model/model.json ]] || TASKS+="$task "
    done
    [[ -n $TASKS ]] || die "$DATA: has no task with a test set and a model folder in $MODELS; for a dry" \
        "run without them, give --tasks"
fi
for task in $TASKS; do
    need "$DATA/$task/test" "--tasks $task: there is no test set in $DATA/$task"
    need "$MODELS/$task/model/model.json" \
        "--tasks $task: there is no model folder $MODELS/$task/model; run finetune.sh"
done
alone "$OUT"

pass MORE --device --user-dir
run mkdir -p "$OUT/predictions"
for task in $TASKS; do
    columns=2 ensemble=()
    [[ ! -d $DATA/$task/input1 ]] || columns=2,3
    for folder in "$MODELS/$task"/model-*; do
        [[ ! -f $folder/model.json ]] || ensemble+=(--ensemble "$folder")
    done
    [[ -d $DATA/$task/test ]] && tests=("$DATA/$task/test"/*.tsv) || tests=("$DATA/$task/test/$task.tsv")
    for test in "${tests[@]}"; do
        name=$(basename "$test" .tsv)
        run fairseq-posenc predict --model "$MODELS/$task/model" "${ensemble[@]}" "${MORE[@]}" \
            --input "$test" --columns "$columns" --output "$OUT/predictions/$name.tsv"
        run fairseq-posenc sentence-task submit "$DATA/$task/task.yaml" "$name" "$test" \
            "$OUT/predictions/$name.tsv" "$OUT"
    done
done
log "submission: the files in $OUT"
