#!/usr/bin/env bash
# Masked language models: raw text to binarised data in FULL-SENTENCES form.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# TEXT_DIR holds train.txt, valid.txt and perhaps test.txt: one sentence or paragraph per
# line, blank lines between documents. OUT/data-bin is then what train.sh takes, and what
# examples/glue/prepare.sh needs to prepare its texts alike. If interrupted, run it
# again to resume; a changed option repeats only the steps that depend on it.
#
#   --wikitext            the texts are WikiText's: documents begin at " = Heading = "
#   --keep-case           do not lower-case (default: lower case, as in the TUPE paper)
#   --subwords NAME       subword-nmt: Moses tokens and their BPE; byte-bpe: byte-level BPE of the
#                         text as it is (RoBERTa, pip install tokenizers); sentencepiece
#                         (subword-nmt)
#   --vocabulary-size N   symbols in the vocabulary (32678, with byte-bpe 50000)
#   --bpe-operations N    merges of subword-nmt, instead of the size of the vocabulary
#   --lang LANG           language for the Moses tokeniser (en)
#   --tokenizer FOLDER    instead of these four: split the texts as this tokenizer of
#                         transformers does, which lower-cases by itself
#   --max-line N          break longer lines (in subwords), at the end of a sentence
#                         where possible (510: with <s> and </s> that makes 512)
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

TEXT="" OUT="" WIKITEXT="" KEEP_CASE="" TEXT_LANG="" OPERATIONS="" MAX_LINE=510
TOKENIZER="" SUBWORDS="" SIZE="" WORD_START=""
WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --wikitext) WIKITEXT=$1; shift ;;
        --keep-case) KEEP_CASE=$1; shift ;;
        --subwords) SUBWORDS=$(value "$@"); shift 2 ;;
        --vocabulary-size) SIZE=$(value "$@"); shift 2 ;;
        --lang) TEXT_LANG=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
        --max-line) MAX_LINE=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" TEXT OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder of the texts and the folder to write to; see --help"
if [[ -n $TOKENIZER ]]; then
    for given in "${SUBWORDS:+--subwords}" "${SIZE:+--vocabulary-size}" \
        "${OPERATIONS:+--bpe-operations}" "${TEXT_LANG:+--lang}"; do
        [[ -z $given ]] || die "$given: has no effect with --tokenizer; give one of them"
    done
    SUBWORDS=transformers
fi
case ${SUBWORDS:=subword-nmt} in
    transformers) [[ -n $TOKENIZER ]] || die "--subwords transformers: give --tokenizer instead" ;;
    subword-nmt) ;;
    byte-bpe) SIZE=${SIZE:-50000} WORD_START=Ġ ;;
    sentencepiece) WORD_START=▁ ;;
    *) die "--subwords $SUBWORDS: expected subword-nmt, byte-bpe or sentencepiece" ;;
esac
if [[ $SUBWORDS != subword-nmt ]]; then
    [[ -z $OPERATIONS ]] ||
        die "--bpe-operations: has no effect with --subwords $SUBWORDS; give --vocabulary-size"
    [[ -z $TEXT_LANG ]] ||
        die "--lang: has no effect with --subwords $SUBWORDS, which splits the text as it is"
fi
[[ -z $SIZE || -z $OPERATIONS ]] || die "--bpe-operations $OPERATIONS: give it or --vocabulary-size"
[[ -z $OPERATIONS ]] || whole_number --bpe-operations "$OPERATIONS"
TEXT_LANG=${TEXT_LANG:-en} SIZE=${SIZE:-32678}
whole_number --vocabulary-size "$SIZE"
whole_number --max-line "$MAX_LINE"
whole_number --workers "$WORKERS"
[[ $TEXT_LANG =~ ^[a-z]{2,3}$ ]] || die "--lang $TEXT_LANG: expected a code such as en"
export WORKERS
check_tokenizer
need python fairseq-preprocess

# A tokenizer lower-cases by itself, in the same way wherever it is used.
LOWER_CASE=""
if [[ -n $TOKENIZER || $SUBWORDS == byte-bpe ]]; then
    [[ -n $KEEP_CASE ]] || LOWER_CASE=--lower-case
    KEEP_CASE=--keep-case
fi
TEXT=$(absolute "$TEXT") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
SPLITS=(train valid)
[[ ! -f $TEXT/test.txt ]] || SPLITS+=(test)
for split in "${SPLITS[@]}"; do
    ((DRY_RUN)) || [[ -f $TEXT/$split.txt ]] || die "$TEXT/$split.txt: no such file"
    ((DRY_RUN)) || STEP_CHAIN+="$split $(sha256sum <"$TEXT/$split.txt")"$'\n'
done
hold "$OUT"
replaceable OUT "$OUT/data-bin" text "$TEXT" ${TOKENIZER:+"$TOKENIZER"}

for split in "${SPLITS[@]}"; do
    step "documents-$split" "$OUT/documents/$split" -- \
        python "$RECIPE/documents.py" ${WIKITEXT:+"$WIKITEXT"} \
        ${KEEP_CASE:+"$KEEP_CASE"} "$TEXT/$split.txt" "$OUT/documents/$split"
done
# Byte-level BPE is kept and used as a tokenizer of transformers.
learn_byte_bpe() {
    TOKENIZER=$OUT/bpe/tokenizer
    step learn-bpe "$TOKENIZER"/tokenizer{,_config}.json -- \
        python "$COMMON/byte_bpe.py" learn --vocabulary-size "$SIZE" ${LOWER_CASE:+"$LOWER_CASE"} \
        "$TOKENIZER" "$OUT/documents/train"
}
by_sentencepiece() {
    local split model=$OUT/bpe/sentencepiece.model
    step learn-sentencepiece "$model" -- python "$COMMON/spm.py" learn --vocabulary-size "$SIZE" \
        "$model" "$OUT/documents/train"
    for split in "${SPLITS[@]}"; do
        step "apply-sentencepiece-$split" "$OUT/bpe/$split" -- \
            python "$COMMON/spm.py" apply "$model" "$OUT/documents/$split" "$OUT/bpe/$split"
    done
}
by_bpe() {
    local split size=(--vocabulary-size "$SIZE")
    [[ -z $OPERATIONS ]] || size=(--operations "$OPERATIONS")
    for split in "${SPLITS[@]}"; do
        step "tokenize-$split" "$OUT/tokens/$split" -- \
            python "$COMMON/moses.py" tokenize --lang "$TEXT_LANG" \
            "$OUT/documents/$split" "$OUT/tokens/$split"
    done
    step learn-bpe "$OUT/bpe/codes" -- \
        python "$COMMON/bpe.py" learn "${size[@]}" "$OUT/bpe/codes" "$OUT/tokens/train"
    for split in "${SPLITS[@]}"; do
        step "apply-bpe-$split" "$OUT/bpe/$split" -- \
            python "$COMMON/bpe.py" apply "$OUT/bpe/codes" "$OUT/tokens/$split" "$OUT/bpe/$split"
    done
}
[[ $SUBWORDS != byte-bpe ]] || learn_byte_bpe
if [[ -n $TOKENIZER ]]; then by_tokenizer "$OUT/bpe"
elif [[ $SUBWORDS == sentencepiece ]]; then by_sentencepiece
else by_bpe; fi
for split in "${SPLITS[@]}"; do
    step "fold-$split" "$OUT/lines/$split" -- python "$RECIPE/fold.py" --max-tokens "$MAX_LINE" \
        ${WORD_START:+--word-start "$WORD_START"} "$OUT/bpe/$split" "$OUT/lines/$split"
done

binarize() {
    local part=$OUT/data-bin.part split prefixes=()
    for split in "${SPLITS[@]}"; do
        prefixes+=("--${split}pref" "$OUT/lines/$split")
    done
    run rm -rf "$part"
    [[ -z $TOKENIZER ]] || prefixes+=(--srcdict "$OUT/bpe/dict.txt")
    run fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$part" --workers "$WORKERS"
    # Record how these texts were prepared: fine-tuning has to do the same.
    keep_splitting "$part"
    ((DRY_RUN)) || printf 'lang %s\nkeep-case %s\nsubwords %s\n' \
        "$TEXT_LANG" "$KEEP_CASE" "$SUBWORDS" >"$part/text"
    replace_folder "$part" "$OUT/data-bin"
}
step binarize "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,"$(splitting_kept)",text} -- binarize

log "data for train.sh: $OUT/data-bin"
