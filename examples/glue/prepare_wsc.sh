#!/usr/bin/env bash
# WNLI by ranking noun phrases, as in RoBERTa's section 5.1: files to data for candidate_ranking.
#
#   prepare_wsc.sh SOURCE PRETRAINED OUT [options]
#
# SOURCE holds train.jsonl and val.jsonl of SuperGLUE's WSC, which has the sentences of WNLI, or
# train.tsv and dev.tsv with candidates of your own (see candidates.py --help). PRETRAINED is the
# data-bin folder that the model was pre-trained on. OUT/WSC is then what finetune.sh takes. If
# interrupted, run it again to resume. The other tasks are those of prepare.sh --tasks.
#
#   --tokenizer FOLDER    split the texts as this tokenizer of transformers does; PRETRAINED is
#                         then the folder of an imported model
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/sentence_tasks.sh
. "$RECIPE/../common/sentence_tasks.sh"

# What an example of this task is, for finetune.sh and scores.py.
DESCRIPTION="\
WSC:
  train: train.jsonl
  valid: val.jsonl
  text: text
  label: label
  labels: 2
  epochs: 10
  batch: 32
  lr: [2e-5, 3e-5, 4e-5, 5e-5]
  papers: {roberta: {batch: [16, 32], lr: [1e-5, 2e-5, 3e-5]}}"

read_options WSC "$@"
[[ -z $TASKS ]] || die "--tasks: has no effect here"
read_pretrained bert_pretraining
((DRY_RUN)) || [[ -d $SOURCE ]] || die "$SOURCE: no such folder"
[[ -z $TOKENIZER ]] || check_symbols
VALID=(valid) TEST=() WORK=$OUT/work/WSC STEPS=$OUT/work/WSC/steps COUNT=4
check_output WSC examples "$SOURCE"
chain ""
((DRY_RUN)) || STEP_CHAIN+=$(splitting)$'\n'
for file in "$SOURCE"/{train,val,dev}.{jsonl,tsv}; do
    ((DRY_RUN)) || [[ ! -f $file ]] || STEP_CHAIN+="${file##*/} $(sha256sum <"$file")"$'\n'
done
step extract "$WORK/text"/{count,input3/train,label/valid} -- \
    python "$RECIPE/candidates.py" "$SOURCE" "$WORK/text"
((DRY_RUN)) || COUNT=$(<"$WORK/text/count")
INPUTS=() OUTPUTS=()
for ((number = 0; number < COUNT; number++)); do INPUTS+=("input$number"); done
for split in train valid; do
    for input in "${INPUTS[@]}"; do
        split_text "$split" "$input" bert_pretraining
        OUTPUTS+=("$OUT/WSC/$input/$split".{bin,idx})
    done
done
step binarize "${OUTPUTS[@]}" "$OUT/WSC/examples" -- binarize WSC numbers
((DRY_RUN)) || printf '%s\n' "$DESCRIPTION" >"$OUT/WSC/task.yaml"
log "data for finetune.sh: $OUT/WSC"
