#!/usr/bin/env bash
# Chinese masked language models: raw text to binarised data with word boundaries.
#
#   prepare.sh TEXTS OUT [options]
#
# TEXTS holds train.txt, valid.txt and perhaps test.txt, one document a line. OUT/data-bin is then what
# train.sh takes, and PRETRAINED of examples/clue/prepare.sh.
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
#   options of ../common/steps.sh --workers --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/tokens.sh"

SUBWORDS="" WORDS_BY=jieba LOWER=(--lowercase) KEPT="" READ=(--format lines)
[[ $LEVEL == piece ]] || SUBWORDS=marked-words
[[ -z $TOKENIZER || -z $SUBWORDS ]] ||
    die "--level $LEVEL: has no effect with --tokenizer; give one of them"
((!SEGMENTED)) || WORDS_BY=spaces
((!KEEP_CASE)) || LOWER=() KEPT=--keep-case
((!BLANK_LINES)) || READ=()
begin "$TEXTS" SPLIT.txt

documents "${READ[@]}" --one-line
SIZE=() FOLDER=pieces
if [[ -n $TOKENIZER ]]; then
    WORDS_BY=tokenizer
    by_tokenizer pieces
else
    LEARN=(--operations "$BPE_OPERATIONS")
    [[ -z $SUBWORDS ]] || LEARN=(--vocabulary-size "$SYMBOLS" --level "$LEVEL")
    on_splits segment documents words -- fairseq-posenc tokenize "${WORDS_BY/spaces/none}" "${LOWER[@]}"
    by_subwords "${SUBWORDS:-marked-pieces}" words pieces "${LEARN[@]}"
    SIZE=(--nwordssrc $((SYMBOLS + 4))) # and the special symbols
fi
# With <s> and </s> that makes 512. Samples of fixed length may span lines.
if [[ $LENGTHS == diff ]]; then
    FOLDER=lines
    on_splits fold pieces lines -- fairseq-posenc fold --max-tokens 510
fi
record "lengths $LENGTHS" "segmenter $WORDS_BY" "keep-case $KEPT" \
    ${SUBWORDS:+"subwords $SUBWORDS" "level $LEVEL"}
binarize "$FOLDER" "${SIZE[@]}"
