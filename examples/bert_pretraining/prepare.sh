#!/usr/bin/env bash
# Masked language models: raw text to binarised data in FULL-SENTENCES form.
#
#   prepare.sh TEXTS OUT [options]
#
# TEXTS holds train.txt, valid.txt and perhaps test.txt: one sentence or paragraph per
# line, blank lines between documents. OUT/data-bin is then what train.sh takes, and what
# examples/glue/prepare.sh needs to prepare its texts alike. If interrupted, run it
# again to resume; a changed option repeats only the steps that depend on it.
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

if [[ -n $TOKENIZER ]]; then
    for given in "${SUBWORDS:+--subwords}" "${VOCABULARY_SIZE:+--vocabulary-size}" \
        "${BPE_OPERATIONS:+--bpe-operations}" "${OPTION_LANG:+--lang}"; do
        [[ -z $given ]] || die "$given: has no effect with --tokenizer; give one of them"
    done
    SUBWORDS=transformers
fi
SUBWORDS=${SUBWORDS:-subword-nmt} WORD_START=()
case $SUBWORDS in
    byte-bpe) VOCABULARY_SIZE=${VOCABULARY_SIZE:-50000} WORD_START=(--word-start Ġ) ;;
    sentencepiece) WORD_START=(--word-start ▁) ;;
esac
if [[ $SUBWORDS != subword-nmt ]]; then
    [[ -z $BPE_OPERATIONS ]] ||
        die "--bpe-operations: has no effect with --subwords $SUBWORDS; give --vocabulary-size"
    [[ -z $OPTION_LANG ]] ||
        die "--lang: has no effect with --subwords $SUBWORDS, which splits the text as it is"
fi
[[ -z $VOCABULARY_SIZE || -z $BPE_OPERATIONS ]] ||
    die "--bpe-operations $BPE_OPERATIONS: give it or --vocabulary-size"
SPOKEN=${OPTION_LANG:-en} SIZE=(--vocabulary-size "${VOCABULARY_SIZE:-32678}")
[[ -z $BPE_OPERATIONS ]] || SIZE=(--operations "$BPE_OPERATIONS")
[[ $SPOKEN =~ ^[a-z]{2,3}$ ]] || die "--lang $SPOKEN: expected a code such as en"
check_tokenizer
# A tokenizer lower-cases by itself, in the same way wherever it is used.
READ=() BYTES=() KEPT=""
((KEEP_CASE)) || BYTES=(--lowercase)
if ((KEEP_CASE)) || [[ -n $TOKENIZER || $SUBWORDS == byte-bpe ]]; then KEPT=--keep-case; else
    READ=(--lowercase)
fi
((!WIKITEXT)) || READ+=(--format wikitext)
export WORKERS=${WORKERS:-$(nproc)}
TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
find_splits "$TEXTS" .txt
alone "$OUT"
((DRY_RUN)) || step binarize --check --inputs "$TEXTS" ${TOKENIZER:+"$TOKENIZER"} \
    --replaces "$OUT/data-bin" --known-by text --option OUT

for split in "${SPLITS[@]}"; do
    step "documents-$split" --inputs "$TEXTS/$split.txt" --outputs "$OUT/documents/$split" -- \
        fairseq-posenc documents "${READ[@]}" "$TEXTS/$split.txt" "$OUT/documents/$split"
done
case $SUBWORDS in
    byte-bpe) learn_byte_bpe "$OUT/documents/train" "${SIZE[@]}" "${BYTES[@]}" ;;
    sentencepiece)
        INPUTS=("$OUT/bpe/sentencepiece.model")
        step learn-sentencepiece --inputs "$OUT/documents/train" --outputs "${INPUTS[0]}" -- \
            fairseq-posenc learn-subwords sentencepiece "${SIZE[@]}" "${INPUTS[0]}" \
            "$OUT/documents/train"
        on_splits apply-sentencepiece "$OUT/documents" "$OUT/bpe" \
            fairseq-posenc apply-subwords sentencepiece "${INPUTS[0]}" ;;
    subword-nmt)
        on_splits tokenize "$OUT/documents" "$OUT/tokens" \
            fairseq-posenc tokenize moses --lang "$SPOKEN"
        step learn-bpe --inputs "$OUT/tokens/train" --outputs "$OUT/bpe/codes" -- \
            fairseq-posenc learn-subwords subword-nmt "${SIZE[@]}" "$OUT/bpe/codes" "$OUT/tokens/train"
        INPUTS=("$OUT/bpe/codes")
        on_splits apply-bpe "$OUT/tokens" "$OUT/bpe" \
            fairseq-posenc apply-subwords subword-nmt "$OUT/bpe/codes" ;;
esac
[[ -z $TOKENIZER ]] || by_tokenizer "$OUT/documents" "$OUT/bpe"
INPUTS=()
on_splits fold "$OUT/bpe" "$OUT/lines" fairseq-posenc fold --max-tokens "$MAX_LINE" "${WORD_START[@]}"
binarize "$OUT/lines" "lang $SPOKEN"$'\n'"keep-case $KEPT"$'\n'"subwords $SUBWORDS"
