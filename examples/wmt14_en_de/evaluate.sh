#!/usr/bin/env bash
# WMT14 English-German: average checkpoints, translate newstest2014, print three BLEUs.
#
#   evaluate.sh DATA SAVE_DIR [options] [-- flags for fairseq-generate]
#
# DATA is the data-bin folder of prepare.sh, SAVE_DIR where train.sh put its checkpoints.
# Translations and scores.json go to SAVE_DIR/evaluate-test.
#
#   --average N           number of last epoch checkpoints to average (5)
#   --last-epoch N        the last of these (the newest)
#   --checkpoint FILE     translate with this checkpoint instead of an average
#   --subset NAME         test (newstest2014) or valid (newstest2013)
#   --beam N              beam size (4)
#   --lenpen X            length penalty (0.6)
#   --max-tokens N        tokens translated at once (8000)
#   --cpu                 without GPU
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" SAVE_DIR="" CHECKPOINT="" USER_DIR="" CPU="" LAST_EPOCH=""
AVERAGE=5 SUBSET=test BEAM=4 LENPEN=0.6 MAX_TOKENS=8000
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --cpu) CPU=--cpu; shift ;;
        --average) AVERAGE=$(value "$@"); shift 2 ;;
        --last-epoch) LAST_EPOCH=$(value "$@"); shift 2 ;;
        --checkpoint) CHECKPOINT=$(value "$@"); shift 2 ;;
        --subset) SUBSET=$(value "$@"); shift 2 ;;
        --beam) BEAM=$(value "$@"); shift 2 ;;
        --lenpen) LENPEN=$(value "$@"); shift 2 ;;
        --max-tokens) MAX_TOKENS=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) die "$1: unknown option; see --help (flags for fairseq-generate go after --)" ;;
        *)
            [[ -z $SAVE_DIR ]] || die "$1: unexpected argument; flags for fairseq-generate go after --"
            if [[ -z $DATA ]]; then DATA=$1; else SAVE_DIR=$1; fi
            shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-generate.

[[ -n $SAVE_DIR ]] || die "give the data folder and the folder of the checkpoints; see --help"
whole_number --average "$AVERAGE"
[[ -z $LAST_EPOCH ]] || whole_number --last-epoch "$LAST_EPOCH"
whole_number --beam "$BEAM"
whole_number --max-tokens "$MAX_TOKENS"
[[ $SUBSET == test || $SUBSET == valid ]] || die "--subset $SUBSET: expected test or valid"
need python fairseq-generate
REFERENCE=$DATA/reference.$SUBSET
if ((!DRY_RUN)); then
    [[ -f $REFERENCE.de ]] ||
        die "$DATA: no reference.$SUBSET.de there; give the data-bin folder that prepare.sh made"
    [[ -d $SAVE_DIR ]] || die "$SAVE_DIR: no such folder; give the --save-dir of train.sh"
    [[ -z $CHECKPOINT || -f $CHECKPOINT ]] || die "--checkpoint $CHECKPOINT: no such file"
fi
USER_DIR=${USER_DIR:-$(plugin_dir)}
RESULTS=$SAVE_DIR/evaluate-$SUBSET
hold "$RESULTS"

if [[ -z $CHECKPOINT ]]; then
    CHECKPOINT=$SAVE_DIR/average$AVERAGE.pt
    run fairseq-posenc average --inputs "$SAVE_DIR" \
        --num-epoch-checkpoints "$AVERAGE" \
        ${LAST_EPOCH:+--checkpoint-upper-bound "$LAST_EPOCH"} --output "$CHECKPOINT"
fi
# Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
run fairseq-generate "$DATA" --user-dir "$USER_DIR" --task translation \
    --source-lang en --target-lang de --path "$CHECKPOINT" --gen-subset "$SUBSET" \
    --beam "$BEAM" --lenpen "$LENPEN" --remove-bpe --max-tokens "$MAX_TOKENS" \
    --required-batch-size-multiple 1 --results-path "$RESULTS" ${CPU:+"$CPU"} "$@"
run python "$COMMON/score.py" --lang de --compound-split --reference "$REFERENCE.de" \
    --tokenized-reference "$REFERENCE.tok.de" --json "$RESULTS/scores.json" \
    "$RESULTS/generate-$SUBSET.txt"
