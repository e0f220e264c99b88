#!/usr/bin/env bash
# Turn the five archives of WMT14 English-German into binary data in OUT/data-bin.
#   [RAW=FOLDER] [SYMBOLS=37000] [WORKERS=N] [ARCHIVES=FILE] prepare.sh OUT
# RAW has the archives; missing ones are downloaded to it. ARCHIVES lists the archives with their digests.
set -euo pipefail
OUT=${1:?the folder to write} HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RAW=${RAW:-$OUT/raw} SYMBOLS=${SYMBOLS:-37000} WORKERS=${WORKERS:-$(nproc)}
ARCHIVES=${ARCHIVES:-$HERE/archives.txt} CHECK=$HERE/../common/check.py

export TQDM_MININTERVAL=10 # otherwise the progress of subword-nmt fills a log
die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }

mkdir -p "$RAW" "$OUT"/{plain,tokens,bpe,clean}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
[[ -e $OUT/settings ]] || echo "SYMBOLS=$SYMBOLS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "SYMBOLS=$SYMBOLS" ]] ||
    die "$OUT was made with $(<"$OUT/settings"), not with SYMBOLS=$SYMBOLS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }

while read -r sum digest name url; do
    if [[ ! -e $RAW/$name ]]; then
        curl --fail --location --retry 5 --continue-at - --output "$RAW/$name.part" "$url$name"
        mv "$RAW/$name.part" "$RAW/$name"
    fi
    "$sum" --check --quiet <<<"$digest  $RAW/$name" ||
        die "$RAW/$name: its digest is not the one in $ARCHIVES; remove the file, or correct the list"
done <"$ARCHIVES"

# Carriage returns would split lines, so they become spaces; a last line without a line feed gets one.
training() {
    local corpus
    for corpus in europarl-v7:training/europarl-v7 commoncrawl:commoncrawl nc-v9:training/news-commentary-v9; do
        tar -xzOf "$RAW/training-parallel-${corpus%:*}.tgz" "${corpus#*:}.de-en.$1" |
            perl -pe 'tr/\r/ /; s/\n?\z/\n/' || return
    done
}
held_out() { tar -xzOf "$RAW/$1" "$2" | python "$HERE/sgm.py"; }
for lang in en de; do create "$OUT/plain/train.$lang" training $lang; done
create "$OUT/plain/valid.en" held_out dev.tgz dev/newstest2013-src.en.sgm
create "$OUT/plain/valid.de" held_out dev.tgz dev/newstest2013-ref.de.sgm
create "$OUT/plain/test.en" held_out test-full.tgz test-full/newstest2014-deen-src.en.sgm
create "$OUT/plain/test.de" held_out test-full.tgz test-full/newstest2014-deen-ref.de.sgm

# Tokenise by Moses: rich-text becomes rich @-@ text. Control characters become spaces.
tokenize() { perl -CSD -pe 's/[^\P{C}\n]/ /g' "$2" | sacremoses -q -l "$1" -j "$WORKERS" normalize tokenize -a; }
learn() { cat "$OUT"/tokens/train.{en,de} | subword-nmt learn-bpe --total-symbols -s "$SYMBOLS"; }
for split in train valid test; do
    python "$CHECK" pairs "$OUT/plain/$split".{en,de}
    for lang in en de; do create "$OUT/tokens/$split.$lang" tokenize $lang "$OUT/plain/$split.$lang"; done
done
create "$OUT/bpe.codes" learn
for text in {train,valid,test}.{en,de}; do
    create "$OUT/bpe/$text" subword-nmt apply-bpe -c "$OUT/bpe.codes" -i "$OUT/tokens/$text"
done

# Keep training pairs with 1 to 250 symbols per side, neither side over 1.5 times as long as the other.
clean() { paste "$OUT"/bpe/train.{en,de} | awk -F '\t' -v side="$1" '
    {a = split($1, _, " "); b = split($2, _, " ")} a && b && a <= 250 && b <= 250 && a <= 1.5*b && b <= 1.5*a {print $side}'; }
create "$OUT/clean/train.en" clean 1
create "$OUT/clean/train.de" clean 2
python "$CHECK" lengths 1022 "$OUT"/bpe/{valid,test}.{en,de}

rm -rf "$OUT/data-bin.part"
fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --workers "$WORKERS" \
    --trainpref "$OUT/clean/train" --validpref "$OUT/bpe/valid" --testpref "$OUT/bpe/test" --destdir "$OUT/data-bin.part"
cp "$OUT/bpe.codes" "$OUT/plain/test.de" "$OUT/data-bin.part"
cp "$OUT/tokens/test.de" "$OUT/data-bin.part/test.tok.de"
mv "$OUT/data-bin.part" "$OUT/data-bin"
