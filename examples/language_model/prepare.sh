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
# Single files are split by position: 90 % train, 5 % valid, 5 % test. OUT/data-bin is then what train.sh
# and compare.sh take.
#
#   --subwords byte-bpe|sentencepiece  of the kind subwords: as in GPT-3, for which pip install
#                         tokenizers, or pieces of SentencePiece (default: byte-bpe)
#   --vocabulary-size N   of the kind subwords: symbols (default: 50000)
#   --articles            of the kind subwords: SOURCE is WikiText, of which each article becomes a line,
#                         so that </s> ends an article, as --document-mask needs it
#   options of ../common/steps.sh --workers --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/tokens.sh"

TOKENIZER=""
[[ " wikitext text8 enwik8 subwords " == *" $KIND "* ]] ||
    die "$KIND: unknown kind; expected wikitext, text8, enwik8 or subwords"
[[ $KIND == subwords ]] ||
    useless "on $KIND; it is for the kind subwords" --subwords --vocabulary-size --articles
SUBWORDS=${SUBWORDS:-byte-bpe} SIZE=(--vocabulary-size "${VOCABULARY_SIZE:-50000}")
SOURCE=$(absolute "$SOURCE") NAMES=() PART=$(part "$(absolute "$OUT")/data-bin")
# The checksums of Matt Mahoney's page, http://mattmahoney.net/dc/textdata.html
declare -A MD5=([text8]=3bea1919949baf155f99411df5fada7e [enwik8]=a1fa5ffddb56f4953e226637dabbb36a)

case $KIND in
    wikitext) NAMES=(wiki.SPLIT.tokens SPLIT.txt) ;;
    subwords) if ((ARTICLES)); then NAMES=(wiki.SPLIT.tokens SPLIT.txt); else
        NAMES=(SPLIT.jsonl SPLIT.txt)
    fi ;;
    *)  need "$SOURCE" "$SOURCE: no such file; give the file $KIND"
        ((DRY_RUN)) || [[ $(md5sum <"$SOURCE") == "${MD5[$KIND]} "* ]] ||
            log "$SOURCE: differs from the published $KIND; results are not comparable with the literature" ;;
esac
begin "$SOURCE" "${NAMES[@]}"

if [[ $KIND == subwords ]]; then
    if ((ARTICLES)); then documents --format wikitext --one-line; else
        documents --format running
    fi
    if [[ $SUBWORDS == byte-bpe ]]; then by_byte_bpe "${SIZE[@]}"; else
        by_subwords sentencepiece documents bpe "${SIZE[@]}" --byte-fallback
    fi
    record "kind subwords" "keep-case --keep-case" "subwords $SUBWORDS"
    binarize bpe
    exit
fi
record "kind $KIND"
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
