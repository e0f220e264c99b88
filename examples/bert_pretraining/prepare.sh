#!/usr/bin/env bash
# Turn raw text into binary data in OUT/data-bin, for masked language models with FULL-SENTENCES samples.
#   [SUBWORDS=subword-nmt] [SIZE=32678]: BPE of Moses' tokens; SIZE is the number of characters and merges
#   SUBWORDS=sentencepiece: pieces of the raw text; SUBWORDS=byte-bpe [SIZE=50000]: byte-level BPE as in RoBERTa
#   [LOWERCASE=1] [WIKITEXT=] [LANGUAGE=en] [LONGEST=510] [WORKERS=N] prepare.sh TEXTS OUT
# TEXTS has train.txt, valid.txt and optionally test.txt: one sentence or paragraph per line, blank lines
# between documents; with WIKITEXT=1, documents begin at " = Heading = ". Lines of more than LONGEST symbols
# are broken. LOWERCASE= keeps capitals.
set -euo pipefail
TEXTS=${1:?a folder of texts} OUT=${2:?the folder to write} HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SUBWORDS=${SUBWORDS:-subword-nmt} LANGUAGE=${LANGUAGE:-en} LONGEST=${LONGEST:-510} WORKERS=${WORKERS:-$(nproc)}
WIKITEXT=${WIKITEXT:-}
export LOWERCASE=${LOWERCASE-1} # byte_bpe.py reads it
export TQDM_MININTERVAL=10 # otherwise the progress of subword-nmt fills a log
COMMON=$HERE/../common START='' DICTIONARY=() TESTS=()
[[ $SUBWORDS != byte-bpe ]] || SIZE=${SIZE:-50000}
SIZE=${SIZE:-32678}

die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }
documents() { python "$COMMON/documents.py" ${WIKITEXT:+--wikitext} ${LOWERCASE:+--lowercase} "$1"; }

SPLITS=(train valid)
[[ ! -e $TEXTS/test.txt ]] || SPLITS+=(test)
for split in "${SPLITS[@]}"; do python "$COMMON/check.py" texts "$TEXTS/$split.txt"; done
case $SUBWORDS in
    subword-nmt) # replaces control characters by spaces, and tokenises by Moses
        tokenize() { perl -CSD -pe 's/[^\P{C}\n]/ /g' "$OUT/documents/$1" | sacremoses -q -l "$LANGUAGE" -j "$WORKERS" normalize tokenize; }
        learn() {
            for split in "${SPLITS[@]}"; do create "$OUT/tokens/$split" tokenize "$split"; done
            create "$OUT/bpe.codes" subword-nmt learn-bpe --total-symbols -s "$SIZE" -i "$OUT/tokens/train"
        }
        apply() { subword-nmt apply-bpe -c "$OUT/bpe.codes" -i "$OUT/tokens/$1"; }
        FILE=bpe.codes ;;
    sentencepiece)
        learn() { create "$OUT/sentencepiece.model" python "$COMMON/pieces.py" learn unigram /dev/stdout "$SIZE" "$OUT/documents/train"; }
        apply() { python "$COMMON/pieces.py" split "$OUT/sentencepiece.model" <"$OUT/documents/$1"; }
        FILE=sentencepiece.model START=▁ ;;
    byte-bpe)
        learn() { create "$OUT/dict.txt" python "$HERE/byte_bpe.py" learn "$OUT/tokenizer" "$SIZE" "$OUT/documents/train"; }
        apply() { python "$HERE/byte_bpe.py" split "$OUT/tokenizer" <"$OUT/documents/$1"; }
        FILE=tokenizer START=Ġ DICTIONARY=(--srcdict "$OUT/dict.txt") ;;
    *) die "SUBWORDS=$SUBWORDS: expected subword-nmt, sentencepiece or byte-bpe" ;;
esac

mkdir -p "$OUT"/{documents,tokens,symbols,lines}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
SETTINGS="SUBWORDS=$SUBWORDS SIZE=$SIZE LOWERCASE=$LOWERCASE WIKITEXT=$WIKITEXT LANGUAGE=$LANGUAGE LONGEST=$LONGEST \
texts $(for split in "${SPLITS[@]}"; do cat "$TEXTS/$split.txt"; done | cksum)"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }

for split in "${SPLITS[@]}"; do create "$OUT/documents/$split" documents "$TEXTS/$split.txt"; done
learn
fold() { python "$COMMON/fold.py" "$LONGEST" ${START:+"$START"} <"$OUT/symbols/$1"; }
for split in "${SPLITS[@]}"; do
    create "$OUT/symbols/$split" apply "$split"
    create "$OUT/lines/$split" fold "$split"
done
[[ ${#SPLITS[@]} == 2 ]] || TESTS=(--testpref "$OUT/lines/test")
rm -rf "$OUT/data-bin.part"
fairseq-preprocess --only-source --workers "$WORKERS" "${DICTIONARY[@]}" --trainpref "$OUT/lines/train" \
    --validpref "$OUT/lines/valid" "${TESTS[@]}" --destdir "$OUT/data-bin.part"
cp -r "$OUT/$FILE" "$OUT/data-bin.part"
mv "$OUT/data-bin.part" "$OUT/data-bin"
