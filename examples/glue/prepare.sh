#!/usr/bin/env bash
# Turn the files of a GLUE, SuperGLUE or CLUE task, or of your own, into data for fairseq-train in OUT/data-bin.
#   [WORKERS=N] prepare.sh TASK SOURCE MODEL OUT [flags of tasks.py]
# TASK is a name from the table in tasks.py, SOURCE the folder of its files, MODEL the folder that
# `fairseq-posenc pack` wrote for the pre-trained model. For TASK own, --text and --label name the columns.
set -euo pipefail
TASK=${1:?a task} SOURCE=${2:?the folder of its files} MODEL=${3:?a model folder} OUT=${4:?the folder to write}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) WORKERS=${WORKERS:-$(nproc)}

die() { echo "prepare.sh: $*" >&2; exit 1; }
shopt -s nullglob
FILES=("$SOURCE"/{train,dev,val}*.{tsv,json,jsonl})
((${#FILES[@]})) || die "$SOURCE: has no train.tsv, train.json or train.jsonl"
mkdir -p "$OUT"
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
SETTINGS="$TASK $SOURCE $(cat "${FILES[@]}" | cksum) $MODEL $(cksum <"$MODEL/dict.txt") ${*:5}"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }
rm -rf "$OUT"/{data-bin.part,text,symbols}
python "$HERE/../common/check.py" texts "${FILES[@]}"
python "$HERE/tasks.py" "$TASK" "$SOURCE" "$OUT/text" "${@:5}"

# preprocess COLUMN FOLDER DICTIONARY: binarise all splits of a column in FOLDER
preprocess() {
    local valid=("$2/$1"/valid*)
    fairseq-preprocess --only-source --srcdict "$3" --workers "$WORKERS" --trainpref "$2/$1/train" \
        --validpref "$(IFS=, && echo "${valid[*]}")" --destdir "$OUT/data-bin.part/$1"
}
for column in "$OUT"/text/input*; do
    column=${column##*/}
    python "$HERE/../common/symbols.py" "$MODEL" "$OUT/symbols/$column" "$OUT/text/$column"/*
    python "$HERE/../common/check.py" vocabulary "$MODEL/dict.txt" "$OUT/symbols/$column"/*
    preprocess "$column" "$OUT/symbols" "$MODEL/dict.txt"
done
[[ ! -e $OUT/text/label/dict.txt ]] || preprocess label "$OUT/text" "$OUT/text/label/dict.txt"
mkdir -p "$OUT/data-bin.part/label"
for split in "$OUT"/text/label/{train,valid*}; do cp "$split" "$OUT/data-bin.part/label/${split##*/}.label"; done
cp "$OUT/text/task" "$OUT/data-bin.part"
mv "$OUT/data-bin.part" "$OUT/data-bin"
