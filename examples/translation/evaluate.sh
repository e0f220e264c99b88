#!/usr/bin/env bash
# Translation: average checkpoints, translate the test set, score it, write a model folder.
#
#   evaluate.sh DATA SAVE_DIR [options] [-- flags for fairseq-generate]
#
# DATA is the data-bin folder of prepare.sh, SAVE_DIR where train.sh put its checkpoints. RESULTS
# then holds hypotheses.txt (detokenised, in the order of the source), scores.txt and scores.json,
# reference.txt, and what fairseq-generate printed; compare.sh takes such folders.
#
#   --average N           number of last checkpoints to average (5)
#   --average-by NAME     epochs: those of the last epochs; updates: the last of train.sh's
#                         --save-every (epochs)
#   --last-epoch N        the last of these epochs (the newest)
#   --last-update N       the same of updates
#   --checkpoint FILE     translate with this checkpoint instead of an average
#   --subset NAME         test or valid (test)
#   --beam N              beam size (4)
#   --lenpen X            length penalty (0.6)
#   --max-tokens N        tokens translated at once (8000)
#   --compound-split      also print compound-split BLEU (Moses only)
#   --bleu-tokenizer NAME  sacreBLEU's tokeniser (by the target language)
#   --comet MODEL         also COMET: a checkpoint, or a name to download; needs unbabel-comet
#   --results DIR         the folder RESULTS (SAVE_DIR/evaluate-SUBSET)
#   --model DIR           model folder for raw text, new or to be replaced (SAVE_DIR/model)
#   --no-model            write none
#   --about TEXT          a sentence on the data, for its card
#   --cpu                 without GPU
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/translation.sh
. "$RECIPE/../common/translation.sh"

DATA="" SAVE_DIR="" CHECKPOINT="" USER_DIR="" CPU="" LAST="" AVERAGE=5 BY=epochs SUBSET=test
BEAM=4 LENPEN=0.6 MAX_TOKENS=8000 COMPOUND="" BLEU="" COMET="" RESULTS="" MODEL="" PACK=1 ABOUT=""
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --cpu) CPU=--cpu; shift ;;
        --compound-split) COMPOUND=--compound-split; shift ;;
        --no-model) PACK=0; shift ;;
        --average) AVERAGE=$(value "$@"); shift 2 ;;
        --average-by) BY=$(value "$@"); shift 2 ;;
        --last-epoch) LAST=$(value "$@"); whole_number "$1" "$LAST"; BY=epochs; shift 2 ;;
        --last-update) LAST=$(value "$@"); whole_number "$1" "$LAST"; BY=updates; shift 2 ;;
        --checkpoint) CHECKPOINT=$(value "$@"); shift 2 ;;
        --subset) SUBSET=$(value "$@"); shift 2 ;;
        --beam) BEAM=$(value "$@"); shift 2 ;;
        --lenpen) LENPEN=$(value "$@"); shift 2 ;;
        --max-tokens) MAX_TOKENS=$(value "$@"); shift 2 ;;
        --bleu-tokenizer) BLEU=$(value "$@"); shift 2 ;;
        --comet) COMET=$(value "$@"); shift 2 ;;
        --results) RESULTS=$(value "$@"); shift 2 ;;
        --model) MODEL=$(value "$@"); shift 2 ;;
        --about) ABOUT=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA SAVE_DIR; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-generate.

[[ -n $SAVE_DIR ]] || die "give the data folder and the folder of the checkpoints; see --help"
whole_number --average "$AVERAGE"
whole_number --beam "$BEAM"
whole_number --max-tokens "$MAX_TOKENS"
[[ $LENPEN =~ ^-?[0-9]+(\.[0-9]+)?$ ]] || die "--lenpen $LENPEN: expected a number such as 0.6"
[[ $SUBSET == test || $SUBSET == valid ]] || die "--subset $SUBSET: expected test or valid"
[[ $BY == epochs || $BY == updates ]] || die "--average-by $BY: expected epochs or updates"
need python fairseq-generate
read_settings "$DATA"
REFERENCE=$DATA/reference.$SUBSET
[[ $TOKENIZER == moses || -z $COMPOUND ]] ||
    die "--compound-split: is for text in Moses' tokens; prepare it with --tokenizer moses"
if ((!DRY_RUN)); then
    [[ -f $REFERENCE.$TARGET ]] ||
        die "$DATA: no reference.$SUBSET.$TARGET there; give prepare.sh the texts of $SUBSET"
    [[ -d $SAVE_DIR ]] || die "$SAVE_DIR: no such folder; give the --save-dir of train.sh"
    [[ -z $CHECKPOINT || -f $CHECKPOINT ]] || die "--checkpoint $CHECKPOINT: no such file"
fi
USER_DIR=${USER_DIR:-$(plugin_dir)}
RESULTS=${RESULTS:-$SAVE_DIR/evaluate-$SUBSET} MODEL=${MODEL:-$SAVE_DIR/model}
((!PACK)) || replaceable --model "$MODEL" model.json
hold "$RESULTS"

if [[ -z $CHECKPOINT ]]; then
    CHECKPOINT=$SAVE_DIR/average$AVERAGE.pt
    run fairseq-posenc average --inputs "$SAVE_DIR" "--num-${BY%s}-checkpoints" "$AVERAGE" \
        ${LAST:+--checkpoint-upper-bound "$LAST"} --output "$CHECKPOINT"
fi
# score.py joins the pieces of SentencePiece, since fairseq leaves its bytes as they are.
JOIN=() PIECES=()
case $SUBWORDS in
    subword-nmt) JOIN=(--remove-bpe) ;;
    sentencepiece) PIECES=(--sentencepiece "$DATA/${TARGET_SUBWORD_FILE:-$SUBWORD_FILE}") ;;
esac
# Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
run fairseq-generate "$DATA" --user-dir "$USER_DIR" --task translation \
    ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"} --path "$CHECKPOINT" --gen-subset "$SUBSET" \
    --beam "$BEAM" --lenpen "$LENPEN" ${JOIN[@]+"${JOIN[@]}"} --max-tokens "$MAX_TOKENS" \
    --required-batch-size-multiple 1 --results-path "$RESULTS" ${CPU:+"$CPU"} "$@"
[[ $TOKENIZER == none ]] || PIECES+=(--tokenized-reference "$REFERENCE.tok.$TARGET")
run python "$COMMON/score.py" --lang "${TARGET:-en}" --reference "$REFERENCE.$TARGET" \
    --tokenizer "$TOKENIZER" ${PIECES[@]+"${PIECES[@]}"} ${COMPOUND:+"$COMPOUND"} \
    ${BLEU:+--bleu-tokenizer "$BLEU"} \
    ${COMET:+--comet "$COMET" --source "$REFERENCE.$SOURCE"} --hypotheses "$RESULTS/hypotheses.txt" \
    --text "$RESULTS/scores.txt" --json "$RESULTS/scores.json" "$RESULTS/generate-$SUBSET.txt"
run cp "$REFERENCE.$TARGET" "$RESULTS/reference.txt"

# ---- all that raw text needs, for `fairseq-posenc translate`

((PACK)) || exit 0
FILES=()
[[ -z $SUBWORD_FILE ]] || FILES+=(--subword-file "$DATA/$SUBWORD_FILE")
[[ -z $TARGET_SUBWORD_FILE ]] || FILES+=(--target-subword-file "$DATA/$TARGET_SUBWORD_FILE")
pack_model --model "$MODEL" "$CHECKPOINT" --data "$DATA" \
    ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"} \
    --tokenizer "$TOKENIZER" ${DASH_SPLITS:+"$DASH_SPLITS"} \
    --subwords "$SUBWORDS" ${FILES[@]+"${FILES[@]}"} --beam "$BEAM" --lenpen "$LENPEN" \
    ${ABOUT:+--about "$ABOUT"} --scores "$RESULTS/scores.json"
