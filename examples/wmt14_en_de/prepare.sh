#!/usr/bin/env bash
# WMT14 English-German: download, tokenise, learn BPE, clean, binarise.
#
#   prepare.sh OUT [options]
#
# OUT/data-bin is then what train.sh and evaluate.sh take. If interrupted, run it
# again to resume; a changed option repeats only the steps that depend on it. After
# the extraction, the work is done by ../translation/prepare.sh; these are its settings.
#
#   --raw DIR             take the five archives from DIR instead of downloading them
#   --checksums FILE      sha256sum-style list that overrides all others
#   --vocabulary-size N   characters and merges of the joint BPE (37000, as in the
#                         Transformer paper)
#   --bpe-operations N    merges of the joint BPE, instead
#   --no-dash-splits      do not split rich-text (default: rich @-@ text)
#   --max-length N        drop training pairs with more BPE tokens per side (250)
#   --ratio R             drop training pairs with a larger length ratio (1.5)
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/digests.sh
. "$RECIPE/../common/digests.sh"

# name, address, published digest ("-": none known; README.md names the sources)
ARCHIVES=(
    "training-parallel-europarl-v7.tgz https://www.statmt.org/wmt13/ sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"
    "training-parallel-commoncrawl.tgz https://www.statmt.org/wmt13/ sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
    "training-parallel-nc-v9.tgz https://www.statmt.org/wmt14/ sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"
    "dev.tgz https://www.statmt.org/wmt14/ md5:88ba3fc60b2278d59277122e1c7dd6e7"
    "test-full.tgz https://www.statmt.org/wmt14/ md5:a8cd784e006feb32ac6f3d9ec7eb389a"
)

OUT="" RAW="" CHECKSUMS="" DASH=--dash-splits MAX_LENGTH=250 RATIO=1.5
SUBWORDS=(--vocabulary-size 37000) DRY=()
WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1 DRY=(--dry-run); shift ;;
        --no-dash-splits) DASH=""; shift ;;
        --raw) RAW=$(value "$@"); shift 2 ;;
        --checksums) CHECKSUMS=$(value "$@"); shift 2 ;;
        --vocabulary-size | --bpe-operations)
            whole_number "$1" "$(value "$@")"
            SUBWORDS=("$1" "$2"); shift 2 ;;
        --max-length) MAX_LENGTH=$(value "$@"); shift 2 ;;
        --ratio) RATIO=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder to write to; see --help"
whole_number --max-length "$MAX_LENGTH"
whole_number --workers "$WORKERS"
[[ $RATIO =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--ratio $RATIO: expected a number such as 1.5"
[[ -z $CHECKSUMS || -f $CHECKSUMS ]] || die "--checksums $CHECKSUMS: no such file"
[[ -z $RAW || -d $RAW ]] || die "--raw $RAW: no such folder"
export WORKERS
need python fairseq-preprocess

OUT=$(absolute "$OUT")
STEPS=$OUT/steps
RECORD=$OUT/checksums.sha256
ARCHIVE_DIR=$(absolute "${RAW:-$OUT/raw}")
for entry in "${ARCHIVES[@]}"; do
    [[ -z $RAW || -f $ARCHIVE_DIR/${entry%% *} ]] || die "--raw $RAW: has no ${entry%% *}"
done
hold "$OUT"

for entry in "${ARCHIVES[@]}"; do
    read -r name address digest <<<"$entry"
    if [[ -z $RAW ]]; then
        fetch "$address$name" "$ARCHIVE_DIR/$name" "$digest"
    elif ((!DRY_RUN)); then
        verify "$ARCHIVE_DIR/$name" "$digest"
    fi
done

step extract-train "$OUT"/plain/train.{en,de}.gz -- \
    fairseq-posenc script "$RECIPE/extract.py" "$OUT"/plain/train.{en,de}.gz \
    --from "$ARCHIVE_DIR/training-parallel-europarl-v7.tgz" \
    training/europarl-v7.de-en.en training/europarl-v7.de-en.de \
    --from "$ARCHIVE_DIR/training-parallel-commoncrawl.tgz" \
    commoncrawl.de-en.en commoncrawl.de-en.de \
    --from "$ARCHIVE_DIR/training-parallel-nc-v9.tgz" \
    training/news-commentary-v9.de-en.en training/news-commentary-v9.de-en.de
step extract-valid "$OUT"/plain/valid.{en,de}.gz -- \
    fairseq-posenc script "$RECIPE/extract.py" "$OUT"/plain/valid.{en,de}.gz \
    --from "$ARCHIVE_DIR/dev.tgz" dev/newstest2013-src.en.sgm dev/newstest2013-ref.de.sgm
step extract-test "$OUT"/plain/test.{en,de}.gz -- \
    fairseq-posenc script "$RECIPE/extract.py" "$OUT"/plain/test.{en,de}.gz \
    --from "$ARCHIVE_DIR/test-full.tgz" \
    test-full/newstest2014-deen-src.en.sgm test-full/newstest2014-deen-ref.de.sgm

exec "$RECIPE/../translation/prepare.sh" "$OUT/plain" "$OUT" --source-lang en --target-lang de \
    --subwords subword-nmt "${SUBWORDS[@]}" ${DASH:+"$DASH"} --max-length "$MAX_LENGTH" \
    --ratio "$RATIO" --workers "$WORKERS" ${DRY[@]+"${DRY[@]}"}
