#!/usr/bin/env bash
# WMT14 English-German: download, tokenise, learn BPE, clean, binarise.
#
#   prepare.sh OUT [options]
#
# OUT/data-bin is then what train.sh and evaluate.sh take. After the extraction, the work is done by
# ../translation/prepare.sh; these are its settings.
#
#   --raw DIR             take the five archives from DIR instead of downloading them
#   --checksums FILE      sha256sum-style list that overrides all others
#   --vocabulary-size N   characters and merges of the joint BPE (default: 37000, as in the
#                         Transformer paper)
#   --no-dash-splits      do not split rich-text as rich @-@ text
#   options of ../translation/prepare.sh --bpe-operations --max-length --ratio --workers --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/digests.sh"

# name, address, published digest ("-": none known; README.md names the sources)
ARCHIVES=(
    "training-parallel-europarl-v7.tgz https://www.statmt.org/wmt13/ sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"
    "training-parallel-commoncrawl.tgz https://www.statmt.org/wmt13/ sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
    "training-parallel-nc-v9.tgz https://www.statmt.org/wmt14/ sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"
    "dev.tgz https://www.statmt.org/wmt14/ md5:88ba3fc60b2278d59277122e1c7dd6e7"
    "test-full.tgz https://www.statmt.org/wmt14/ md5:a8cd784e006feb32ac6f3d9ec7eb389a"
)
[[ -z $RAW || -d $RAW ]] || die "--raw $RAW: no such folder"
OUT=$(absolute "$OUT") RECORD=$OUT/checksums.sha256 FROM=$(absolute "${RAW:-$OUT/raw}")
for entry in "${ARCHIVES[@]}"; do
    [[ -z $RAW || -f $FROM/${entry%% *} ]] || die "--raw $RAW: has no ${entry%% *}"
done
alone "$OUT"

for entry in "${ARCHIVES[@]}"; do
    read -r name address digest <<<"$entry"
    fetch "$address$name" "$FROM/$name" "$digest"
done

# Extract the texts of a split from archives: the files of each, English and German, follow its name.
extract() {
    local word words=(">$OUT/plain/$1".{en,de}.gz)
    for word in "${@:2}"; do
        if [[ $word == *.tgz ]]; then words+=(--from "<$FROM/$word"); else words+=("$word"); fi
    done
    step "extract-$1" -- fairseq-posenc script "$RECIPE/extract.py" "${words[@]}"
}
extract train training-parallel-europarl-v7.tgz training/europarl-v7.de-en.{en,de} \
    training-parallel-commoncrawl.tgz commoncrawl.de-en.{en,de} \
    training-parallel-nc-v9.tgz training/news-commentary-v9.de-en.{en,de}
extract valid dev.tgz dev/newstest2013-{src.en,ref.de}.sgm
extract test test-full.tgz test-full/newstest2014-deen-{src.en,ref.de}.sgm

pass OPTIONS --vocabulary-size --bpe-operations --max-length --ratio --workers --dry-run
[[ -n $VOCABULARY_SIZE$BPE_OPERATIONS ]] || OPTIONS+=(--vocabulary-size 37000)
((NO_DASH_SPLITS)) || OPTIONS+=(--dash-splits)
exec "$RECIPE/../translation/prepare.sh" "$OUT/plain" "$OUT" --source-lang en --target-lang de \
    --subwords subword-nmt "${OPTIONS[@]}"
