#!/usr/bin/env bash
# WNLI by ranking noun phrases, as in RoBERTa's section 5.1: files to data for candidate_ranking.
#
#   prepare_wsc.sh SOURCE PRETRAINED OUT [options]
#
# SOURCE holds train.jsonl and val.jsonl of SuperGLUE's WSC, which has the sentences of WNLI, or
# train.tsv and dev.tsv with candidates of your own (see candidates.py --help). PRETRAINED is the
# data-bin folder that the model was pre-trained on. OUT/WSC is then what finetune.sh takes.
#
#   options of ../common/sentence_tasks.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/sentence_tasks.sh"
need "$SOURCE/" "$SOURCE: no such folder"
use_pretrained bert_pretraining
WORK=$OUT/work/WSC SPLITS=(train valid) COUNT=4
check_output WSC examples "$SOURCE"

step WSC-extract -- fairseq-posenc script "$RECIPE/candidates.py" "<$SOURCE" ">$WORK/text"
((DRY_RUN)) || COUNT=$(<"$WORK/text/count")
mapfile -t INPUTS < <(seq -f 'input%g' 0 $((COUNT - 1)))
split_texts WSC "$WORK"
binarize_task WSC "$WORK/pieces" "$WORK/text" numbers
run cp "$RECIPE/wsc.yaml" "$OUT/WSC/task.yaml"
log "data for finetune.sh: $OUT/WSC"
