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
# Files are split by position: 90 % train, 5 % valid, 5 % test. OUT/data-bin is
# then what train.sh and compare.sh take. Run again, it repeats no finished step.
#
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

KIND="" SOURCE="" OUT="" WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) die "$1: unknown option; see --help" ;;
        *)
            [[ -z $OUT ]] || die "$1: unexpected argument; see --help"
            if [[ -z $KIND ]]; then KIND=$1; elif [[ -z $SOURCE ]]; then SOURCE=$1; else OUT=$1; fi
            shift ;;
    esac
done
[[ -n $OUT ]] || die "give the kind, the source and the folder to write to; see --help"
whole_number --workers "$WORKERS"
need python fairseq-preprocess

SOURCE=$(absolute "$SOURCE") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
PART=$OUT/data-bin.part

# The checksums of Matt Mahoney's page, http://mattmahoney.net/dc/textdata.html
declare -A MD5=([text8]=3bea1919949baf155f99411df5fada7e [enwik8]=a1fa5ffddb56f4953e226637dabbb36a)

words() {
    local split file prefixes=()
    for split in train valid test; do
        for file in "$SOURCE/wiki.$split.tokens" "$SOURCE/$split.txt" ""; do
            [[ ! -f $file ]] || break
        done
        [[ -n $file ]] || ((!DRY_RUN)) || file=$SOURCE/$split.txt
        [[ -n $file || $split == test ]] ||
            die "$SOURCE: has neither wiki.$split.tokens nor $split.txt; give a folder of WikiText"
        [[ -n $file ]] || continue
        prefixes+=("--${split}pref" "$file")
        ((!DRY_RUN)) || continue
        python "$COMMON/text.py" "$file" || exit
        STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
    done
    MAKE=(fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$PART" --workers "$WORKERS")
}

characters() {
    local seen
    MAKE=(python "$RECIPE/characters.py" binarize "$KIND" "$SOURCE" "$PART")
    ((!DRY_RUN)) || return 0
    [[ -f $SOURCE ]] || die "$SOURCE: no such file; give the file $KIND"
    seen=$(md5sum <"$SOURCE")
    STEP_CHAIN+="$KIND $seen"$'\n'
    [[ ${seen%% *} == "${MD5[$KIND]}" ]] ||
        log "$SOURCE: differs from the published $KIND; results are not comparable with the literature"
}

binarize() {
    run rm -rf "$PART"
    run "${MAKE[@]}"
    # Record what the symbols are: who uses the model needs to know.
    ((DRY_RUN)) || printf 'kind %s\n' "$KIND" >"$PART/text"
    run rm -rf "$OUT/data-bin"
    run mv "$PART" "$OUT/data-bin"
}

case $KIND in
    wikitext) words ;;
    text8 | enwik8) characters ;;
    *) die "$KIND: unknown kind; expected wikitext, text8 or enwik8" ;;
esac
hold "$OUT"
step "binarize-$KIND" "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,text} -- binarize "$KIND"

log "data for train.sh: $OUT/data-bin"
