#!/usr/bin/env bash
# Turn a corpus for language models into binary data in OUT/data-bin.
#   [SUBWORDS=byte-bpe] [SIZE=50000] [ARTICLES=] [WORKERS=N] prepare.sh KIND SOURCE OUT
# KIND wikitext: SOURCE has the words of WikiText, {train,valid,test}.txt or wiki.{train,valid,test}.tokens.
# KIND text8, enwik8: SOURCE is the file; 90 % of its characters or bytes become train, 5 % valid, 5 % test.
# KIND subwords: SOURCE has running text: {train,valid}.jsonl with one {"text": ...} per line, or .txt with blank lines
# between documents. SUBWORDS: byte-bpe or sentencepiece. ARTICLES=1: SOURCE has WikiText; each article becomes a line.
set -euo pipefail
KIND=${1:?wikitext, text8, enwik8 or subwords} SOURCE=${2:?a folder or file} OUT=${3:?the folder to write}
SUBWORDS=${SUBWORDS:-byte-bpe} SIZE=${SIZE:-50000} ARTICLES=${ARTICLES:-} WORKERS=${WORKERS:-$(nproc)}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) EXAMPLES=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PART=$OUT/data-bin.part FILES=() PREFIXES=() DICTIONARY=()

die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }
case $KIND in
    wikitext | subwords)
        for split in train valid test; do
            for file in "$SOURCE/wiki.$split.tokens" "$SOURCE/$split".{jsonl,txt}; do
                [[ ! -e $file || $file != *.jsonl || $KIND == subwords ]] || continue
                [[ ! -e $file ]] || { FILES+=("$split:$file") && break; }
            done
        done
        [[ ${FILES[*]} == *train:*valid:* ]] || die "$SOURCE: has no train and valid texts" ;;
    text8 | enwik8)
        [[ -f $SOURCE ]] || die "$SOURCE: no such file; give the file $KIND"
        FILES=("all:$SOURCE") ;;
    *) die "$KIND: expected wikitext, text8, enwik8 or subwords" ;;
esac
case $SUBWORDS in byte-bpe | sentencepiece) ;; *) die "SUBWORDS=$SUBWORDS: expected byte-bpe or sentencepiece" ;; esac

mkdir -p "$OUT"/{documents,symbols}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
SETTINGS="$KIND SUBWORDS=$SUBWORDS SIZE=$SIZE ARTICLES=$ARTICLES texts $(cat "${FILES[@]#*:}" | cksum)"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }
rm -rf "$PART" && mkdir "$PART"

if [[ $KIND == text8 || $KIND == enwik8 ]]; then
    python "$HERE/characters.py" "$KIND" "$SOURCE" "$PART"
    mv "$PART" "$OUT/data-bin" && exit
fi
python "$EXAMPLES/common/check.py" texts "${FILES[@]#*:}"
documents() { python "$EXAMPLES/common/documents.py" ${ARTICLES:+--articles} "$1"; }
case $SUBWORDS in
    byte-bpe) LEARN=("$OUT/dict.txt" python "$EXAMPLES/bert_pretraining/byte_bpe.py" learn "$OUT/tokenizer" "$SIZE")
        SPLIT=("$EXAMPLES/bert_pretraining/byte_bpe.py" split "$OUT/tokenizer") KEEP=$OUT/tokenizer ;;
    *) LEARN=("$OUT/sentencepiece.model" python "$EXAMPLES/common/pieces.py" learn unigram /dev/stdout "$SIZE")
        SPLIT=("$EXAMPLES/common/pieces.py" split "$OUT/sentencepiece.model") KEEP=$OUT/sentencepiece.model ;;
esac
apply() { python "${SPLIT[@]}" <"$OUT/documents/$1"; }
for file in "${FILES[@]}"; do
    split=${file%%:*} && [[ $KIND == wikitext ]] && PREFIXES+=("--${split}pref" "${file#*:}") && continue
    create "$OUT/documents/$split" documents "${file#*:}"
    create "${LEARN[@]}" "$OUT/documents/train"
    create "$OUT/symbols/$split" apply "$split" && PREFIXES+=("--${split}pref" "$OUT/symbols/$split")
done
[[ $KIND == wikitext ]] || { cp -r "$KEEP" "$PART" && { [[ $SUBWORDS != byte-bpe ]] || DICTIONARY=(--srcdict "$OUT/dict.txt"); }; }
fairseq-preprocess --only-source "${PREFIXES[@]}" "${DICTIONARY[@]}" --workers "$WORKERS" --destdir "$PART"
mv "$PART" "$OUT/data-bin"
