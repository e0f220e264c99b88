#!/usr/bin/env bash
# Masked language models: raw text to binarised data in FULL-SENTENCES form.
#
#   prepare.sh TEXTS OUT [options]
#
# TEXTS holds train.txt, valid.txt and perhaps test.txt: a sentence or paragraph a line, blank lines
# between documents. OUT/data-bin is then what train.sh takes, and PRETRAINED of examples/glue/prepare.sh.
#
#   --wikitext            the texts are WikiText's: documents begin at " = Heading = "
#   --keep-case           do not lower-case, as the TUPE paper does
#   --subwords subword-nmt|byte-bpe|sentencepiece  BPE of Moses tokens; byte-level BPE of the text as
#                         it is, for which pip install tokenizers, as RoBERTa; or pieces of
#                         SentencePiece (default: subword-nmt)
#   --vocabulary-size N   symbols in the vocabulary (default: 32678, with byte-bpe 50000)
#   --bpe-operations N    merges of subword-nmt, instead of the size of the vocabulary
#   --lang LANG           language for the Moses tokeniser (default: en)
#   --tokenizer FOLDER    instead of these four: split the texts as this tokenizer of
#                         transformers does, which lower-cases by itself
#   --max-line N          break longer lines (in subwords), at the end of a sentence
#                         where possible: with <s> and </s>, 510 makes 512 (510)
#   options of ../common/steps.sh --workers --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/tokens.sh"

if [[ -n $TOKENIZER ]]; then
    useless "with --tokenizer; give one of them" --subwords --vocabulary-size --bpe-operations --lang
    SUBWORDS=transformers
fi
SUBWORDS=${SUBWORDS:-subword-nmt} WORD_START=()
case $SUBWORDS in
    byte-bpe) VOCABULARY_SIZE=${VOCABULARY_SIZE:-50000} WORD_START=(--word-start Ġ) ;;
    sentencepiece) WORD_START=(--word-start ▁) ;;
esac
if [[ $SUBWORDS != subword-nmt ]]; then
    useless "with --subwords $SUBWORDS; give --vocabulary-size" --bpe-operations
    useless "with --subwords $SUBWORDS, which splits the text as it is" --lang
fi
[[ -z $VOCABULARY_SIZE || -z $BPE_OPERATIONS ]] ||
    die "--bpe-operations $BPE_OPERATIONS: give it or --vocabulary-size"
SPOKEN=${OPTION_LANG:-en} SIZE=(--vocabulary-size "${VOCABULARY_SIZE:-32678}")
[[ -z $BPE_OPERATIONS ]] || SIZE=(--operations "$BPE_OPERATIONS")
[[ $SPOKEN =~ ^[a-z]{2,3}$ ]] || die "--lang $SPOKEN: expected a code such as en"
# A tokenizer lower-cases by itself, in the same way wherever it is used.
READ=() BYTES=() KEPT=""
((KEEP_CASE)) || BYTES=(--lowercase)
if ((KEEP_CASE)) || [[ -n $TOKENIZER || $SUBWORDS == byte-bpe ]]; then KEPT=--keep-case; else
    READ=(--lowercase)
fi
((!WIKITEXT)) || READ+=(--format wikitext)
begin "$TEXTS" SPLIT.txt

documents "${READ[@]}"
case $SUBWORDS in
    transformers) by_tokenizer bpe ;;
    byte-bpe) by_byte_bpe "${SIZE[@]}" "${BYTES[@]}" ;;
    sentencepiece) by_subwords sentencepiece documents bpe "${SIZE[@]}" ;;
    subword-nmt)
        on_splits tokenize documents tokens -- fairseq-posenc tokenize moses --lang "$SPOKEN"
        by_subwords subword-nmt tokens bpe "${SIZE[@]}" ;;
esac
on_splits fold bpe lines -- fairseq-posenc fold --max-tokens "$MAX_LINE" "${WORD_START[@]}"
record "lang $SPOKEN" "keep-case $KEPT" "subwords $SUBWORDS"
binarize lines
