#!/usr/bin/env bash
# Language models: from a published corpus to binarised data.
#
#   prepare.sh KIND SOURCE OUT [options]
#
# KIND is the kind of SOURCE:
#   wikitext    the folder of WikiText-2 or WikiText-103, word-level with <unk>:
#               wiki.{train,valid,test}.tokens or {train,valid,test}.txt
#   text8       the file text8: letters and spaces, a space becomes _
#   enwik8      the file enwik8 or any other file, each byte a symbol
#   subwords    a folder with running text such as OpenWebText2 or the Pile, {train,valid}.jsonl
#               (a document a line, {"text": "..."}) or {train,valid}.txt (blank lines between
#               documents), perhaps test: split into subwords, with </s> after every line
# Single files are split by position: 90 % train, 5 % valid, 5 % test. OUT/data-bin is
# then what train.sh and compare.sh take. Run again, it repeats no finished step.
#
#   --subwords byte-bpe|sentencepiece  of the kind subwords: as in GPT-3, for which pip install
#                         tokenizers, or pieces of SentencePiece (default: byte-bpe)
#   --vocabulary-size N   of the kind subwords: symbols (default: 50000)
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

TOKENIZER="" SPLITS=()
[[ " wikitext text8 enwik8 subwords " == *" $KIND "* ]] ||
    die "$KIND: unknown kind; expected wikitext, text8, enwik8 or subwords"
for given in "${SUBWORDS:+--subwords}" "${VOCABULARY_SIZE:+--vocabulary-size}"; do
    [[ -z $given || $KIND == subwords ]] ||
        die "$given: has no effect on $KIND; it is for the kind subwords"
done
SUBWORDS=${SUBWORDS:-byte-bpe} SIZE=(--vocabulary-size "${VOCABULARY_SIZE:-50000}")
export WORKERS=${WORKERS:-$(nproc)}
SOURCE=$(absolute "$SOURCE") OUT=$(absolute "$OUT") PART=$(part "$OUT/data-bin")
# The checksums of Matt Mahoney's page, http://mattmahoney.net/dc/textdata.html
declare -A MD5=([text8]=3bea1919949baf155f99411df5fada7e [enwik8]=a1fa5ffddb56f4953e226637dabbb36a)

# The texts of SOURCE: TEXT[SPLIT], the first that there is of the names given.
declare -A TEXT=()
find_texts() {
    local split file
    for split in train valid test; do
        for file in "$SOURCE/${1//SPLIT/$split}" "$SOURCE/${2//SPLIT/$split}" ""; do
            [[ ! -f $file ]] || break
        done
        [[ -n $file || $split == test ]] || ((!DRY_RUN)) || file=$SOURCE/${2//SPLIT/$split}
        [[ -n $file || $split == test ]] ||
            die "$SOURCE: has neither ${1//SPLIT/$split} nor ${2//SPLIT/$split}"
        [[ -z $file ]] || { SPLITS+=("$split") && TEXT[$split]=$file; }
    done
}
case $KIND in
    wikitext) find_texts wiki.SPLIT.tokens SPLIT.txt ;;
    subwords) find_texts SPLIT.jsonl SPLIT.txt ;;
    *)  ((DRY_RUN)) || [[ -f $SOURCE ]] || die "$SOURCE: no such file; give the file $KIND"
        ((DRY_RUN)) || [[ $(md5sum <"$SOURCE") == "${MD5[$KIND]} "* ]] ||
            log "$SOURCE: differs from the published $KIND; results are not comparable with the literature" ;;
esac
alone "$OUT"
((DRY_RUN)) || step binarize --check --inputs "$SOURCE" --replaces "$OUT/data-bin" --known-by text \
    --option OUT

if [[ $KIND == subwords ]]; then
    for split in "${SPLITS[@]}"; do
        step "documents-$split" --inputs "${TEXT[$split]}" --outputs "$OUT/documents/$split" -- \
            fairseq-posenc documents --format running "${TEXT[$split]}" "$OUT/documents/$split"
    done
    if [[ $SUBWORDS == byte-bpe ]]; then
        learn_byte_bpe "$OUT/documents/train" "${SIZE[@]}"
        by_tokenizer "$OUT/documents" "$OUT/bpe"
    else
        INPUTS=("$OUT/bpe/sentencepiece.model")
        step learn-sentencepiece --inputs "$OUT/documents/train" --outputs "${INPUTS[0]}" -- \
            fairseq-posenc learn-subwords sentencepiece "${SIZE[@]}" --byte-fallback \
            "${INPUTS[0]}" "$OUT/documents/train"
        on_splits apply-sentencepiece "$OUT/documents" "$OUT/bpe" \
            fairseq-posenc apply-subwords sentencepiece "${INPUTS[0]}"
    fi
    binarize "$OUT/bpe" "kind subwords"$'\n'"keep-case --keep-case"$'\n'"subwords $SUBWORDS"
    exit
fi
# What the symbols are, which users of the model need to know.
((DRY_RUN)) || { printf 'kind %s\n' "$KIND" >"$OUT/text.part" && mv "$OUT/text.part" "$OUT/text"; }
if [[ $KIND == wikitext ]]; then
    PREFIXES=() FILES=()
    for split in "${SPLITS[@]}"; do
        PREFIXES+=("--${split}pref" "${TEXT[$split]}") FILES+=("${TEXT[$split]}")
    done
    MAKE=(fairseq-posenc check-plain "${FILES[@]}" '&&' fairseq-preprocess --only-source
        "${PREFIXES[@]}" --destdir "$PART" --workers "$WORKERS")
else
    FILES=("$SOURCE") MAKE=(python "$RECIPE/characters.py" "$KIND" "$SOURCE" "$PART")
fi
step binarize --inputs "${FILES[@]}" "$OUT/text" --replaces "$OUT/data-bin" --known-by text \
    --option OUT --outputs "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,text} -- \
    "${MAKE[@]}" '&&' cp "$OUT/text" "$PART/text"
log "data for train.sh: $OUT/data-bin"
