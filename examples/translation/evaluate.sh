#!/usr/bin/env bash
# Translation: average checkpoints, translate the test set, score it, write a model folder.
#
#   evaluate.sh DATA SAVE_DIR [options] [-- flags for fairseq-generate]
#
# Documents, prepared with --context, are translated sentence by sentence, each after the model's own
# translations of the sentences before; the flags are then for `fairseq-posenc translate`.
#
# DATA is the data-bin folder of prepare.sh, SAVE_DIR where train.sh put its checkpoints. RESULTS
# then holds hypotheses.txt (detokenised, in the order of the source), scores.txt and scores.json,
# reference.txt, and what fairseq-generate printed; compare.sh takes such folders.
#
#   --average N           number of last checkpoints to average (5)
#   --average-by epochs|updates  checkpoints of epochs, or those of train.sh's --save-every (epochs)
#   --last-epoch N        average checkpoints of epochs, up to this one (default: the newest)
#   --last-update N       average checkpoints of updates, up to this one (default: the newest)
#   --checkpoint FILE     translate with this checkpoint instead of an average
#   --subset test|valid   texts to translate (test)
#   --beam N              beam size (4)
#   --lenpen X            length penalty (0.6)
#   --max-tokens N        tokens translated at once (8000)
#   --compound-split      also print compound-split BLEU, of text in Moses' tokens
#   --bleu-tokenizer NAME  sacreBLEU's tokeniser (default: by the target language)
#   --comet MODEL         also COMET: a checkpoint, or a name to download; needs unbabel-comet
#   --results DIR         the folder RESULTS (default: SAVE_DIR/evaluate-SUBSET)
#   --model DIR           model folder for raw text, new or to be replaced (default: SAVE_DIR/model)
#   --no-model            write none
#   --about TEXT          a sentence on the data, for its card
#   --cpu                 without GPU
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
. "$COMMON/translation.sh"
parse "$@"
. "$COMMON/cluster.sh"

[[ -z $LAST_EPOCH || -z $LAST_UPDATE ]] || die "--last-update $LAST_UPDATE: give it or --last-epoch"
[[ -z $LAST_EPOCH ]] || AVERAGE_BY=epochs
[[ -z $LAST_UPDATE ]] || AVERAGE_BY=updates
LAST=$LAST_EPOCH$LAST_UPDATE
read_settings "$DATA"
REFERENCE=$DATA/reference.$SUBSET
[[ $TOKENIZER == moses || $COMPOUND_SPLIT == 0 ]] ||
    die "--compound-split: is for text in Moses' tokens; prepare it with --tokenizer moses"
need "$REFERENCE.$TARGET" \
    "$DATA: no reference.$SUBSET.$TARGET there; give prepare.sh the texts of $SUBSET"
need "$SAVE_DIR/" "$SAVE_DIR: no such folder; give the --save-dir of train.sh"
[[ -z $CHECKPOINT ]] || need "$CHECKPOINT" "--checkpoint $CHECKPOINT: no such file"
RESULTS=$(absolute "${RESULTS:-$SAVE_DIR/evaluate-$SUBSET}") MODEL=$(absolute "${MODEL:-$SAVE_DIR/model}")
alone "$RESULTS"
((NO_MODEL)) || step model --check --replaces "$MODEL" --known-by model.json --option=--model

if [[ -z $CHECKPOINT ]]; then
    CHECKPOINT=$SAVE_DIR/average$AVERAGE.pt
    run fairseq-posenc average --inputs "$SAVE_DIR" "--num-${AVERAGE_BY%s}-checkpoints" "$AVERAGE" \
        ${LAST:+--checkpoint-upper-bound "$LAST"} --output "$CHECKPOINT"
fi
# Write a model folder: pack FOLDER [options].
PACK=(--data "$DATA" ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"}
    --tokenizer "$TOKENIZER" ${DASH_SPLITS:+"$DASH_SPLITS"} --subwords "$SUBWORDS"
    ${SUBWORD_FILE:+--subword-file "$DATA/$SUBWORD_FILE"}
    ${TARGET_SUBWORD_FILE:+--target-subword-file "$DATA/$TARGET_SUBWORD_FILE"}
    ${CONTEXT:+--context "${CONTEXT##*,}" --context-sides "$CONTEXT_SIDES"}
    --beam "$BEAM" --lenpen "$LENPEN")
pass SCORE --bleu-tokenizer --compound-split --comet
if [[ -n $CONTEXT ]]; then
    # fairseq-generate cannot give the model its own translations of the sentences before.
    useless "on documents" --compound-split --comet
    DEVICE=cuda
    ((!CPU)) && [[ $(visible_gpus) != 0 ]] || DEVICE=cpu
    UNSCORED=$RESULTS/unscored
    run rm -rf "$UNSCORED"
    run fairseq-posenc pack "$CHECKPOINT" "$UNSCORED" "${PACK[@]}"
    run fairseq-posenc translate --documents --model "$UNSCORED" --user-dir "$USER_DIR" \
        --engine fairseq --device "$DEVICE" --max-tokens "$MAX_TOKENS" \
        --input "$REFERENCE.$SOURCE" --output "$RESULTS/hypotheses.txt" "${EXTRA[@]}"
    run rm -rf "$UNSCORED"
    SCORE+=(--documents "$RESULTS/hypotheses.txt")
else
    pass GENERATE --cpu
    [[ $SUBWORDS != subword-nmt ]] || GENERATE+=(--remove-bpe)
    # score.py joins the pieces of SentencePiece, since fairseq leaves its bytes as they are.
    [[ $SUBWORDS != sentencepiece ]] ||
        SCORE+=(--sentencepiece "$DATA/${TARGET_SUBWORD_FILE:-$SUBWORD_FILE}")
    # Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
    run fairseq-generate "$DATA" --user-dir "$USER_DIR" --task translation \
        ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"} --path "$CHECKPOINT" \
        --gen-subset "$SUBSET" --beam "$BEAM" --lenpen "$LENPEN" --max-tokens "$MAX_TOKENS" \
        --required-batch-size-multiple 1 --results-path "$RESULTS" "${GENERATE[@]}" "${EXTRA[@]}"
    [[ $TOKENIZER == none ]] || SCORE+=(--tokenized-reference "$REFERENCE.tok.$TARGET")
    [[ -z $COMET ]] || SCORE+=(--source "$REFERENCE.$SOURCE")
    SCORE+=(--tokenizer "$TOKENIZER" --hypotheses "$RESULTS/hypotheses.txt")
    SCORE+=("$RESULTS/generate-$SUBSET.txt")
fi
run fairseq-posenc script "$COMMON/score.py" --lang "${TARGET:-en}" --reference "$REFERENCE.$TARGET" \
    --text "$RESULTS/scores.txt" --json "$RESULTS/scores.json" "${SCORE[@]}"
run cp "$REFERENCE.$TARGET" "$RESULTS/reference.txt"

# All that raw text needs, for `fairseq-posenc translate`.
((!NO_MODEL)) || exit 0
step model --inputs "$CHECKPOINT" "$RESULTS/scores.json" --data "$DATA" \
    --replaces "$MODEL" --known-by model.json --option=--model -- \
    fairseq-posenc pack "$CHECKPOINT" "$(part "$MODEL")" --ctranslate2 auto "${PACK[@]}" \
    ${ABOUT:+--about "$ABOUT"} --scores "$RESULTS/scores.json"
