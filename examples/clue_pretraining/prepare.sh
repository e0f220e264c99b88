#!/usr/bin/env bash
# Chinese masked language models: raw text to binarised data with word boundaries.
#
#   prepare.sh TEXTS OUT [options]
#
# TEXTS holds train.txt, valid.txt and perhaps test.txt, one document a line.
# OUT/data-bin is then what train.sh takes, and what examples/clue/prepare.sh needs to
# prepare its texts alike. If interrupted, run it again to resume; a changed
# option repeats only what depends on it.
#
#   --blank-lines         blank lines separate the documents
#   --lengths 512|diff    samples of 512 tokens, documents concatenated; or a sample is a document, or
#                         a part of it, of up to 512 (512)
#   --segmented           words are already separated by spaces, and not by jieba
#   --keep-case           do not lower-case
#   --symbols N           maximum size of the dictionary (20000)
#   --level piece|word|character  characters, and pieces of other scripts; the most frequent words, and
#                         characters for the others; or characters (piece)
#   --bpe-operations N    with --level piece, merges for letters and digits that are not Chinese
#                         (8000)
#   --tokenizer FOLDER    instead of the five above: split the texts as this tokenizer of
#                         transformers does; words are what it marks with ##
#   --workers N           worker processes (default: all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
parse "$@"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

SUBWORDS="" WORDS_BY=jieba LOWER=(--lowercase) KEPT="" READ=(--format lines)
[[ $LEVEL == piece ]] || SUBWORDS=marked-words
[[ -z $TOKENIZER || -z $SUBWORDS ]] ||
    die "--level $LEVEL: has no effect with --tokenizer; give one of them"
((!SEGMENTED)) || WORDS_BY=spaces
((!KEEP_CASE)) || LOWER=() KEPT=--keep-case
((!BLANK_LINES)) || READ=()
check_tokenizer
export WORKERS=${WORKERS:-$(nproc)}
TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
find_splits "$TEXTS" .txt
alone "$OUT"
((DRY_RUN)) || step binarize --check --inputs "$TEXTS" ${TOKENIZER:+"$TOKENIZER"} \
    --replaces "$OUT/data-bin" --known-by text --option OUT

for split in "${SPLITS[@]}"; do
    step "documents-$split" --inputs "$TEXTS/$split.txt" --outputs "$OUT/documents/$split" -- \
        fairseq-posenc documents "${READ[@]}" --one-line "$TEXTS/$split.txt" "$OUT/documents/$split"
done
SIZE=() LINES=pieces
if [[ -n $TOKENIZER ]]; then
    WORDS_BY=tokenizer
    by_tokenizer "$OUT/documents" "$OUT/pieces"
else
    HOW=$WORDS_BY LEARN=(marked-pieces --operations "$BPE_OPERATIONS") INPUTS=()
    [[ $HOW == jieba ]] || HOW=none
    [[ -z $SUBWORDS ]] || LEARN=(marked-words --vocabulary-size "$SYMBOLS" --level "$LEVEL")
    on_splits segment "$OUT/documents" "$OUT/words" fairseq-posenc tokenize "$HOW" "${LOWER[@]}"
    INPUTS=("$OUT/bpe/$([[ -n $SUBWORDS ]] && echo words.txt || echo codes)")
    step learn --inputs "$OUT/words/train" --outputs "${INPUTS[0]}" -- \
        fairseq-posenc learn-subwords "${LEARN[@]}" "${INPUTS[0]}" "$OUT/words/train"
    on_splits split "$OUT/words" "$OUT/pieces" \
        fairseq-posenc apply-subwords "${LEARN[0]}" "${INPUTS[0]}"
    SIZE=(--nwordssrc $((SYMBOLS + 4))) # and the special symbols
fi
# With <s> and </s> that makes 512. Samples of fixed length may span lines.
if [[ $LENGTHS == diff ]]; then
    LINES=lines INPUTS=()
    on_splits fold "$OUT/pieces" "$OUT/lines" fairseq-posenc fold --max-tokens 510
fi
ABOUT="lengths $LENGTHS"$'\n'"segmenter $WORDS_BY"$'\n'"keep-case $KEPT"
[[ -z $SUBWORDS ]] || ABOUT+=$'\n'"subwords $SUBWORDS"$'\n'"level $LEVEL"
binarize "$OUT/$LINES" "$ABOUT" "${SIZE[@]}"
