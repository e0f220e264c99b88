#!/usr/bin/env bash
# Translation: from a folder of parallel text to binary data, for any pair of languages.
#
#   prepare.sh TEXTS OUT --source-lang LANG --target-lang LANG [options]
#
# TEXTS holds {train,valid,test}.LANG for both languages, plain or compressed (.gz, .xz, .bz2), one
# sentence a line; test may be missing. OUT/data-bin is then what train.sh and evaluate.sh take.
#
#   --source-lang LANG    ending of the source texts, also the language for Moses
#   --target-lang LANG    the same of the target
#   --train NAME          name of the training texts (train)
#   --valid NAME          name of the validation texts (valid)
#   --test NAME           name of the test texts (test)
#   --tokenizer moses|none  none leaves the text as it is (default: none with SentencePiece, else
#                         moses)
#   --dash-splits         Moses splits rich-text as rich @-@ text
#   --subwords sentencepiece|subword-nmt|none  what splits words (sentencepiece)
#   --sentencepiece-model unigram|bpe  how SentencePiece learns (default: unigram)
#   --byte-fallback       SentencePiece writes unknown characters as bytes
#   --character-coverage X  part of the characters that get pieces in SentencePiece (default: 0.9999)
#   --vocabulary joint|separate  one set of subwords and one dictionary for both languages, or one
#                         for each (joint)
#   --vocabulary-size N   symbols in each set: pieces of SentencePiece; characters and merges of
#                         subword-nmt; with --subwords none, the most frequent words (default: 8000
#                         or, without subwords, all)
#   --bpe-operations N    merges of subword-nmt, instead
#   --learn-from N        lines that SentencePiece learns from, or different words that subword-nmt
#                         learns from (1000000)
#   --max-length N        drop training pairs with more tokens on a side (250)
#   --ratio P             drop training pairs with a larger ratio of lengths (1.5)
#   --no-cleaning         drop no training pair
#   --longest N           refuse longer sentences in valid and test, in tokens (1022)
#   --context LIST        the texts are documents, with a blank line after each: make samples of
#                         sentences after the N sentences before them, or of whole documents; for
#                         LIST 0,3 or 0,whole, both kinds. Nothing is cleaned; --longest is for samples
#   --context-sides both|source|target  where the sentences before are (both)
#   --settings            print how the texts would be prepared, and end
#   options of ../common/steps.sh --workers --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
. "$COMMON/translation.sh"
parse "$@"

SOURCE=$SOURCE_LANG TARGET=$TARGET_LANG
[[ $SOURCE != "$TARGET" ]] || die "--target-lang $TARGET: is the source language, too"
DASH_SPLITS=${GIVEN[--dash-splits]:-}
pass LEARN --byte-fallback --character-coverage
[[ $SUBWORDS == sentencepiece ]] ||
    useless "with --subwords $SUBWORDS" --sentencepiece-model --byte-fallback --character-coverage
[[ $SUBWORDS == subword-nmt ]] || useless "with --subwords $SUBWORDS" --bpe-operations
[[ -z $VOCABULARY_SIZE || -z $BPE_OPERATIONS ]] ||
    die "--bpe-operations $BPE_OPERATIONS: give it or --vocabulary-size"
[[ -n $TOKENIZER ]] || TOKENIZER=$([[ $SUBWORDS == sentencepiece ]] && echo none || echo moses)
[[ $TOKENIZER == moses ]] || useless "without Moses" --dash-splits
if [[ -n $CONTEXT ]]; then
    useless "on documents, of which no pair is dropped" --max-length --ratio --no-cleaning
else
    useless "without --context" --context-sides
fi
case $SUBWORDS in
    sentencepiece) SUBWORD_FILE=sentencepiece.model ;;
    subword-nmt) SUBWORD_FILE=bpe.codes ;;
esac
[[ $SUBWORDS == none || $VOCABULARY == joint ]] ||
    TARGET_SUBWORD_FILE=$TARGET.$SUBWORD_FILE SUBWORD_FILE=$SOURCE.$SUBWORD_FILE
((!SETTINGS)) || { text_settings && exit; }

TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
need "$TEXTS/" "$TEXTS: no such folder"

# The file of a text, plain or compressed; in a dry run, the plain one if there is none.
find_text() {
    local file
    for file in "$1"{,.gz,.xz,.bz2}; do
        [[ ! -f $file ]] || { printf '%s' "$file" && return; }
    done
    ((!DRY_RUN)) || printf '%s' "$1"
}
# TEXT[SPLIT.LANGUAGE] is what the next step reads, KEPT what is binarised and kept with the data.
declare -A NAMES=([train]=$TRAIN [valid]=$VALID [test]=$TEST) TEXT=()
HELD_OUT=(valid) KEPT=() COPIES=() FLAGS=() PART=$(part "$OUT/data-bin")
[[ $TEST == test && -z $(find_text "$TEXTS/test.$SOURCE")$(find_text "$TEXTS/test.$TARGET") ]] ||
    HELD_OUT+=(test)
for split in train "${HELD_OUT[@]}"; do
    for lang in "$SOURCE" "$TARGET"; do
        TEXT[$split.$lang]=$(find_text "$TEXTS/${NAMES[$split]}.$lang")
        [[ -n ${TEXT[$split.$lang]} ]] ||
            die "$TEXTS/${NAMES[$split]}.$lang: no such file, nor .gz, .xz or .bz2"
    done
done
alone "$OUT"
step binarize --check --inputs "$TEXTS" --replaces "$OUT/data-bin" --known-by text.settings --option OUT

# A step on the two texts of a split, by a command of fairseq-posenc: on_pair NAME SPLIT MADE COMMAND...
# It makes MADE.LANG for both languages, unless MADE is empty.
on_pair() {
    step "$1" -- fairseq-posenc "${@:4}" "<${TEXT[$2.$SOURCE]}" "<${TEXT[$2.$TARGET]}" \
        ${3:+">$3.$SOURCE" ">$3.$TARGET"}
}
# A step on all texts of a language, which writes those in a folder: on_texts NAME FOLDER LANG COMMAND...
on_texts() {
    local split file words=()
    for split in train "${HELD_OUT[@]}"; do
        file=$2/$split.$3
        [[ $split != train ]] || file+=.gz # what fairseq-preprocess reads is plain
        words+=("<${TEXT[$split.$3]}" ">$file") TEXT[$split.$3]=$file
    done
    step "$1-$3" -- fairseq-posenc "${@:4}" "${words[@]}"
}

on_pair check-train train "" check-pairs
for split in "${HELD_OUT[@]}"; do
    on_pair "check-$split" "$split" "$OUT/held-out/$split" check-pairs
    for lang in "$SOURCE" "$TARGET"; do
        TEXT[$split.$lang]=$OUT/held-out/$split.$lang KEPT+=("$OUT/held-out/$split.$lang")
        COPIES+=('&&' cp "$OUT/held-out/$split.$lang" "$PART/reference.$split.$lang")
    done
done
if [[ $TOKENIZER == moses ]]; then
    for lang in "$SOURCE" "$TARGET"; do
        on_texts tokenize "$OUT/tokens" "$lang" \
            tokenize moses --lang "$lang" ${DASH_SPLITS:+"$DASH_SPLITS"}
    done
    for split in "${HELD_OUT[@]}"; do
        COPIES+=('&&' cp "${TEXT[$split.$TARGET]}" "$PART/reference.$split.tok.$TARGET")
    done
fi

# Learn subwords from the texts $2... and write them to $1 in OUT/subwords.
learn() {
    local size=(--vocabulary-size "${VOCABULARY_SIZE:-8000}")
    [[ -z $BPE_OPERATIONS ]] || size=(--operations "$BPE_OPERATIONS")
    step "learn-$1" --watch "$OUT/subwords" -- fairseq-posenc learn-subwords "$SUBWORDS" \
        --learn-from "$LEARN_FROM" "${size[@]}" ${SENTENCEPIECE_MODEL:+--type "$SENTENCEPIECE_MODEL"} \
        "${LEARN[@]}" ">$OUT/subwords/$1" "${@:2}"
    KEPT+=("$OUT/subwords/$1") COPIES+=('&&' cp "$OUT/subwords/$1" "$PART/$1")
}
# Make samples of the documents of a split.
IN_CONTEXT=(add-context --context "$CONTEXT" --context-sides "$CONTEXT_SIDES" --longest "$LONGEST")
in_context() {
    local lang
    on_pair "context-$1" "$1" "$OUT/context/$1" "${IN_CONTEXT[@]}"
    for lang in "$SOURCE" "$TARGET"; do TEXT[$1.$lang]=$OUT/context/$1.$lang; done
}
if [[ $SUBWORDS != none ]]; then
    if [[ $VOCABULARY == joint ]]; then
        learn "$SUBWORD_FILE" "<${TEXT[train.$SOURCE]}" "<${TEXT[train.$TARGET]}"
    else
        learn "$SUBWORD_FILE" "<${TEXT[train.$SOURCE]}"
        learn "$TARGET_SUBWORD_FILE" "<${TEXT[train.$TARGET]}"
    fi
    on_texts split "$OUT/subwords" "$SOURCE" apply-subwords "$SUBWORDS" "<$OUT/subwords/$SUBWORD_FILE"
    on_texts split "$OUT/subwords" "$TARGET" \
        apply-subwords "$SUBWORDS" "<$OUT/subwords/${TARGET_SUBWORD_FILE:-$SUBWORD_FILE}"
fi
for split in "${HELD_OUT[@]}"; do
    if [[ -n $CONTEXT ]]; then
        in_context "$split"
    else
        on_pair "lengths-$split" "$split" "" check-pairs --longest "$LONGEST"
    fi
    FLAGS+=("--${split}pref" "${TEXT[$split.$SOURCE]%.*}")
    KEPT+=("${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}")
done
CLEAN=(clean --max-length "$MAX_LENGTH" --ratio "$RATIO")
((!NO_CLEANING)) || CLEAN=(check-pairs)
[[ -z $CONTEXT ]] || CLEAN=("${IN_CONTEXT[@]}")
on_pair clean train "$OUT/clean/train" "${CLEAN[@]}"

((DRY_RUN)) || { text_settings >"$OUT/text.settings.part" && mv "$OUT/text.settings"{.part,}; }
[[ $VOCABULARY == separate ]] || FLAGS+=(--joined-dictionary)
[[ $SUBWORDS != none || -z $VOCABULARY_SIZE ]] ||
    FLAGS+=(--nwordssrc "$VOCABULARY_SIZE" --nwordstgt "$VOCABULARY_SIZE")
MADE=("$OUT/data-bin"/{dict.{"$SOURCE","$TARGET"}.txt,text.settings})
for split in train "${HELD_OUT[@]}"; do
    MADE+=("$OUT/data-bin/$split.$SOURCE-$TARGET".{"$SOURCE","$TARGET"}.{bin,idx})
done
step binarize --inputs "$OUT/clean/train".{"$SOURCE","$TARGET"} "${KEPT[@]}" "$OUT/text.settings" \
    --replaces "$OUT/data-bin" --known-by text.settings --option OUT --outputs "${MADE[@]}" \
    --watch "$PART" -- \
    fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" \
    --trainpref "$OUT/clean/train" --workers "$WORKERS" "${FLAGS[@]}" --destdir "$PART" \
    "${COPIES[@]}" '&&' cp "$OUT/text.settings" "$PART/text.settings"
log "data for train.sh: $OUT/data-bin"
